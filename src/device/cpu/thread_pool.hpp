#pragma once
// A fixed set of threads that all run the same function. Made for thousands of short calls per token: no allocation, no
// queue, a short spin before anybody sleeps, and no waiting for a thread that wasn't needed: one that the system holds
// up doesn't hold up the others.
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace bankml {

class ThreadPool {
 public:
  // `threads` counts the caller of run(): one means no extra thread. Throws Error(device) if a thread can't be started.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const noexcept { return size_; }

  // Calls f(thread, threads) once on every thread, thread 0 being the caller, and returns when all calls have returned.
  // f must not throw and must not call run(). Callers of different threads take turns.
  template <class F>
  void run(F&& f) {
    using Function = std::remove_reference_t<F>;
    run_task([](void* context, int thread, int threads) { (*static_cast<Function*>(context))(thread, threads); },
             const_cast<void*>(static_cast<const void*>(std::addressof(f))), Threads::all);
  }

  // The same, but once the call on thread 0 has returned, no further thread begins: for calls that share out work among
  // whichever threads come in time.
  template <class F>
  void share(F&& f) {
    using Function = std::remove_reference_t<F>;
    run_task([](void* context, int thread, int threads) { (*static_cast<Function*>(context))(thread, threads); },
             const_cast<void*>(static_cast<const void*>(std::addressof(f))), Threads::in_time);
  }

  // Calls f(i) for every i in [0, items), on whichever thread is free.
  template <class F>
  void for_each(std::int64_t items, F&& f) {
    if (items <= 0) return;
    if (size_ == 1 || items == 1) {
      for (std::int64_t i = 0; i < items; ++i) f(i);
      return;
    }
    std::atomic<std::int64_t> next{0};
    share([&](int, int) {
      for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < items;) f(i);
    });
  }

 private:
  using Task = void (*)(void* context, int thread, int threads);
  enum class Threads { all, in_time };
  void run_task(Task task, void* context, Threads which);
  void work(int thread);

  int size_;
  std::mutex callers_;
  Task task_ = nullptr;  // nullptr: the threads end
  void* context_ = nullptr;
  alignas(64) std::atomic<std::uint32_t> started_{0};  // number of run() calls so far
  // The present one: its number in the upper half, whether threads may begin, how many have begun, how many are at it.
  alignas(64) std::atomic<std::uint64_t> round_{0};
  std::vector<std::thread> threads_;
};

}  // namespace bankml
