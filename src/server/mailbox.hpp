#pragma once
// Hands results from the engine's thread to the session that waits for them.
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace bankml {

// Any thread may put; one takes. Shared by the two sides; whichever ends first, the other does no harm.
template <class T>
class Mailbox {
 public:
  // A client that leaves this many results unread no longer reads.
  static constexpr std::size_t kOverflow = 1 << 16;

  // `wake` is called by put() for the first waiting result, and once more when there are too many. It must not block.
  explicit Mailbox(std::function<void()> wake) : wake_(std::move(wake)) {}

  void put(T item) {
    const std::lock_guard lock(mutex_);
    if (!wake_) return;
    items_.push_back(std::move(item));
    if (items_.size() == 1 || items_.size() == kOverflow) wake_();
  }
  std::vector<T> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }
  bool overflowing() const {
    const std::lock_guard lock(mutex_);
    return items_.size() >= kOverflow;
  }
  // After this, nothing is kept and `wake` is never called again.
  void close() {
    const std::lock_guard lock(mutex_);
    wake_ = nullptr;
    items_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::function<void()> wake_;
  std::vector<T> items_;
};

}  // namespace bankml
