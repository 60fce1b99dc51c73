#pragma once
// Hands results from the engine's thread to the session that waits for them.
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace bankml {

// Any thread may put; one takes. Shared by the two sides; whichever ends first, the other does no harm.
template <class T>
class Mailbox {
 public:
  // A client that leaves more than this unread no longer reads.
  static constexpr std::size_t kMaxItems = 1 << 16, kMaxBytes = std::size_t{16} << 20;

  // `wake` is called by put() for the first waiting result, and once more when there are too many. It must not block.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  // `bytes`: about what the item holds.
  void put(T item, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!wake_) return;
    const bool was_too_full = too_full();
    items_.push_back(std::move(item));
    bytes_ += bytes;
    if (items_.size() == 1 || (too_full() && !was_too_full)) wake_();
  }
  std::vector<T> take() {
    const std::lock_guard lock(mutex_);
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

  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<T> items_;
  std::size_t bytes_ = 0;
};

}  // namespace bankml
