#include "device/cpu/thread_pool.hpp"

#include <algorithm>
#include <string>
#include <system_error>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

// About 20 us: longer than the gap between two operations of one forward pass, much shorter than a scheduler's time
// slice.
constexpr int kSpins = 1000;

void pause() noexcept {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Returns once value != old.
template <class T>
void await_change(const std::atomic<T>& value, T old) noexcept {
  for (int i = 0; i < kSpins; ++i) {
    if (value.load(std::memory_order_acquire) != old) return;
    pause();
  }
  value.wait(old, std::memory_order_acquire);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : size_(std::max(threads, 1)) {
  threads_.reserve(static_cast<std::size_t>(size_ - 1));
  try {
    for (int i = 1; i < size_; ++i) threads_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& error) {
    size_ = static_cast<int>(threads_.size()) + 1;  // those that did start are ended by the same path as usual
    run_task(nullptr, nullptr);
    for (std::thread& thread : threads_) thread.join();
    throw Error(ErrorKind::device, "can't start " + std::to_string(threads) + " threads: " + error.what());
  }
}

ThreadPool::~ThreadPool() {
  if (size_ > 1) run_task(nullptr, nullptr);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run_task(Task task, void* context) {
  const std::lock_guard lock(callers_);
  if (size_ == 1) {
    if (task) task(context, 0, 1);
    return;
  }
  task_ = task;
  context_ = context;
  running_.store(size_ - 1, std::memory_order_relaxed);
  started_.fetch_add(1, std::memory_order_release);
  started_.notify_all();
  if (task) task(context, 0, size_);
  for (int left; (left = running_.load(std::memory_order_acquire)) != 0;) await_change(running_, left);
}

void ThreadPool::work(int thread) {
  for (std::uint32_t seen = 0;; ++seen) {
    await_change(started_, seen);
    const Task task = task_;
    if (task) task(context_, thread, size_);
    // The last to finish wakes the caller; nothing of the pool is touched by it after that but the next round's
    // counter.
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_one();
    if (!task) return;
  }
}

}  // namespace bankml
