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

// The parts of ThreadPool::round_.
constexpr std::uint64_t kOpen = std::uint64_t{1} << 31, kBegan = std::uint64_t{1} << 16, kAtIt = 1;
constexpr std::uint32_t number(std::uint64_t round) noexcept {
  return static_cast<std::uint32_t>(round >> 32);
}
constexpr bool is_open(std::uint64_t round) noexcept {
  return (round & kOpen) != 0;
}
constexpr int began(std::uint64_t round) noexcept {
  return static_cast<int>(round >> 16 & 0x7fff);
}
constexpr int at_it(std::uint64_t round) noexcept {
  return static_cast<int>(round & 0xffff);
}

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
    run_task(nullptr, nullptr, Threads::all);
    for (std::thread& thread : threads_) thread.join();
    throw Error(ErrorKind::device, "can't start " + std::to_string(threads) + " threads: " + error.what());
  }
}

ThreadPool::~ThreadPool() {
  if (size_ > 1) run_task(nullptr, nullptr, Threads::all);
  for (std::thread& thread : threads_) thread.join();
}

void ThreadPool::run_task(Task task, void* context, Threads which) {
  const std::lock_guard lock(callers_);
  if (size_ == 1) {
    if (task) task(context, 0, 1);
    return;
  }
  task_ = task;
  context_ = context;
  const std::uint32_t next = started_.load(std::memory_order_relaxed) + 1;
  round_.store(std::uint64_t{next} << 32 | kOpen, std::memory_order_release);
  started_.store(next, std::memory_order_release);
  started_.notify_all();
  if (task) task(context, 0, size_);
  if (which == Threads::all) {
    for (std::uint64_t round; began(round = round_.load(std::memory_order_acquire)) < size_ - 1;) {
      await_change(round_, round);
    }
  }
  round_.fetch_and(~kOpen, std::memory_order_acq_rel);
  for (std::uint64_t round; at_it(round = round_.load(std::memory_order_acquire)) != 0;) await_change(round_, round);
}

void ThreadPool::work(int thread) {
  for (std::uint32_t seen = 0;;) {
    await_change(started_, seen);
    std::uint64_t round = round_.load(std::memory_order_acquire);
    // A round that this thread has been in may still be the present one, if it came in before started_ said so.
    bool joined = false;
    while (is_open(round) && number(round) != seen && !joined) {
      joined = round_.compare_exchange_weak(round, round + kBegan + kAtIt, std::memory_order_acq_rel,
                                            std::memory_order_acquire);
    }
    seen = number(round);
    if (!joined) continue;
    round_.notify_one();
    const Task task = task_;
    if (task) task(context_, thread, size_);
    // Nothing of the pool but the next round is touched after this.
    round_.fetch_sub(kAtIt, std::memory_order_acq_rel);
    round_.notify_one();
    if (!task) return;
  }
}

}  // namespace bankml
