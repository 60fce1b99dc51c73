#pragma once
// Hands results from the engine's thread to the session that waits for them.
#include <chrono>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "bankml/base/error.hpp"

namespace bankml {

// Any thread may put; one takes. Shared by the two sides; whichever ends first, the other does no harm.
template <class T>
class Mailbox {
 public:
  // A client that leaves more than this unread no longer reads.
  static constexpr std::size_t kMaxItems = 1 << 16, kMaxBytes = std::size_t{16} << 20;

  // `wake` is called by put() for the first waiting result, and once more when there are too many. It must not block.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  // `bytes`: about what the item holds. Never fails: without memory for an item, the taker learns that one was lost.
  void put(T item, std::size_t bytes) noexcept {
    const std::lock_guard lock(mutex_);
    if (!wake_) return;
    const bool was_too_full = too_full(), was_empty = items_.empty() && !lost_;
    try {
      items_.push_back(std::move(item));
    } catch (const std::exception&) {
      lost_ = true;
    }
    bytes_ += bytes;
    if (was_empty || (too_full() && !was_too_full)) wake();
  }
  // Throws Error(out_of_memory) once an item has been lost.
  std::vector<T> take() {
    const std::lock_guard lock(mutex_);
    if (lost_) throw Error(ErrorKind::out_of_memory, "out of memory");
    bytes_ = 0;
    return std::exchange(items_, {});
  }
  bool overflowing() const {
    const std::lock_guard lock(mutex_);
    return too_full();
  }
  // After this, nothing is kept and `wake` is never called again.
  void close() {
    const std::lock_guard lock(mutex_);
    wake_ = nullptr;
    items_.clear();
  }

 private:
  bool too_full() const noexcept { return items_.size() >= kMaxItems || bytes_ >= kMaxBytes; }

  // Waking takes a little memory: where there is none, others are about to give some back.
  void wake() noexcept {
    constexpr int kAttempts = 100;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      try {
        return wake_();
      } catch (const std::exception&) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
  }

  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<T> items_;
  std::size_t bytes_ = 0;
  bool lost_ = false;
};

}  // namespace bankml
