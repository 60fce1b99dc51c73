#include "bankml/base/memory_reserve.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace bankml {
namespace {

constexpr std::size_t kProbeBytes = 256 << 10;

// `count` blocks of `size` bytes. Those that have been given back are a list, each holding the address of the next.
template <std::size_t size, std::size_t count>
class Blocks {
 public:
  void* take() noexcept {
    const std::lock_guard lock(mutex_);
    void* block = free_;
    if (block != nullptr) {
      std::memcpy(&free_, block, sizeof free_);
    } else if (untouched_ < count) {
      block = memory_ + size * untouched_++;
    }
    if (block != nullptr) used_.fetch_add(1, std::memory_order_relaxed);
    return block;
  }

  void give_back(void* block) noexcept {
    const std::lock_guard lock(mutex_);
    std::memcpy(block, &free_, sizeof free_);
    free_ = block;
    used_.fetch_sub(1, std::memory_order_relaxed);
  }

  bool owns(const void* piece) const noexcept {
    return reinterpret_cast<std::uintptr_t>(piece) - reinterpret_cast<std::uintptr_t>(memory_) < sizeof memory_;
  }
  bool half_used() const noexcept { return used_.load(std::memory_order_relaxed) >= count / 2; }

 private:
  std::mutex mutex_;
  void* free_ = nullptr;
  std::size_t untouched_ = 0;
  std::atomic<std::size_t> used_ = 0;
  alignas(std::max_align_t) std::byte memory_[size * count] = {};
};

constexpr std::size_t kSmall = 256, kLarge = 4096;
// 1 MiB each, which takes no memory until it is written to.
constinit Blocks<kSmall, 4096> small_blocks;
constinit Blocks<kLarge, 256> large_blocks;

}  // namespace

void* allocate_reserved(std::size_t bytes) noexcept {
  void* block = bytes <= kSmall ? small_blocks.take() : nullptr;
  return block == nullptr && bytes <= kLarge ? large_blocks.take() : block;
}

bool release_reserved(void* piece) noexcept {
  if (small_blocks.owns(piece)) {
    small_blocks.give_back(piece);
  } else if (large_blocks.owns(piece)) {
    large_blocks.give_back(piece);
  } else {
    return false;
  }
  return true;
}

bool memory_is_short() noexcept {
  if (!small_blocks.half_used() && !large_blocks.half_used()) return false;
  void* volatile probe = std::malloc(kProbeBytes);  // volatile: or the compiler leaves out the pair of calls
  std::free(probe);
  return probe == nullptr;
}

}  // namespace bankml
