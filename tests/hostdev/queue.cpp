#include "queue.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <utility>

namespace bankml::host {

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void futex_wake(const std::atomic<std::uint32_t>& word) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

JobQueue::JobQueue() : last_(new Node), first_(last_) {}

JobQueue::~JobQueue() {
  while (first_) delete std::exchange(first_, first_->next.load(std::memory_order_relaxed));
}

void JobQueue::push(Job job) {
  Node* const node = new Node;
  node->job = std::move(job);
  last_->next.store(node, std::memory_order_release);
  last_ = node;
  // Sequentially consistent, so that the popper can't see the old count after having missed the node. An edge from here
  // would be one too many: the popper reads the count relaxed.
  pushed_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(pushed_);
}

Job JobQueue::pop() {
  Node* next = nullptr;
  for (;;) {
    const std::uint32_t pushed = pushed_.load(std::memory_order_relaxed);
    std::atomic_thread_fence(
        std::memory_order_seq_cst);  // the count is read before the link is; no edge for ThreadSanitizer
    next = first_->next.load(std::memory_order_acquire);
    if (next) break;
    futex_wait(pushed_, pushed);
  }
  delete std::exchange(first_, next);
  return std::move(next->job);
}

}  // namespace bankml::host
