#pragma once
// Working memory of operations. It belongs to the thread that calls the operation, grows to the largest need and stays,
// so that no operation allocates in the steady state, and none does on a thread of the pool.
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "bankml/device/device.hpp"
#include "device/cpu/memory.hpp"
#include "device/cpu/thread_pool.hpp"

namespace bankml {

inline constexpr std::size_t kScratchAlignment = 64;

constexpr std::size_t aligned_size(std::size_t bytes) noexcept {
  return (bytes + kScratchAlignment - 1) / kScratchAlignment * kScratchAlignment;
}

// Independent pieces, for what one operation keeps at the same time.
enum class ScratchUse { threads, rows, items };

// `bytes` of memory aligned to 64, contents undefined, valid until this thread asks for the same use again. Throws
// Error(out_of_memory).
std::byte* scratch(ScratchUse use, std::size_t bytes);

// Hands out arrays of a piece of scratch, or counts their bytes while it has none.
class ScratchArrays {
 public:
  explicit ScratchArrays(std::byte* memory = nullptr) noexcept : memory_(memory) {}
  template <class T>
  T* take(std::size_t count) noexcept {
    T* array = memory_ ? reinterpret_cast<T*>(memory_ + bytes_) : nullptr;
    bytes_ += aligned_size(count * sizeof(T));
    return array;
  }
  std::size_t bytes() const noexcept { return bytes_; }

 private:
  std::byte* memory_;
  std::size_t bytes_ = 0;
};

// Calls f(item, memory) for every item in [0, items) on whichever thread is free; `memory` is the thread's own `bytes`.
template <class F>
void for_each_with_scratch(ThreadPool& pool, std::int64_t items, std::size_t bytes, F&& f) {
  const std::size_t stride = aligned_size(bytes);
  if (items <= 1 || pool.size() == 1) {
    std::byte* memory = scratch(ScratchUse::threads, stride);
    for (std::int64_t i = 0; i < items; ++i) f(i, memory);
    return;
  }
  std::byte* memory = scratch(ScratchUse::threads, stride * static_cast<std::size_t>(pool.size()));
  std::atomic<std::int64_t> next{0};
  pool.share([&](int thread, int) {
    std::byte* own = memory + stride * static_cast<std::size_t>(thread);
    for (std::int64_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < items;) f(i, own);
  });
}

}  // namespace bankml
