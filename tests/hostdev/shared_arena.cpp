#include "block.hpp"

#include <algorithm>

#include "sanitizers.hpp"

namespace bankml::host {
namespace {

constexpr std::size_t kGap = 64;  // behind each variable
constexpr std::size_t kNaturalAlignment = 16;
constexpr std::size_t kMaxPadding = kGap + 4 * 128;  // of a variable aligned to up to 128 bytes
constexpr std::size_t kSyncAddressBytes = 8;         // ThreadSanitizer keeps one clock for so many bytes
constexpr int kBarriers = 16;
constexpr int kSyncAddresses = 2 * (kBarriers + kMaxBlockThreads);
constexpr unsigned char kFill = 0xff;

// Not memset, which ThreadSanitizer watches: nothing watched may run on a fiber.
void fill(std::byte* p, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) p[i] = std::byte{kFill};
}

}  // namespace

void SharedArena::begin(std::size_t dynamic_bytes) {
  const std::size_t sync = sanitizer::kThread ? kSyncAddresses * kSyncAddressBytes : 0;
  const std::size_t needed = sync + dynamic_bytes + kDefaultSharedBytes + (kMaxVariables + 2) * kMaxPadding;
  if (sanitizer::kThread || needed > capacity_) {
    // Under ThreadSanitizer fresh for each block: memory used again would order one block after the other.
    const sanitizer::Ignore ignore;
    memory_.reset();
    memory_.reset(new std::byte[needed]);
    capacity_ = needed;
  }
  used_ = sync;
  static_bytes_ = 0;
  variable_count_ = 0;
  sanitizer::poison(memory_.get(), capacity_);
  dynamic_ = dynamic_bytes == 0 ? nullptr : place(dynamic_bytes, kNaturalAlignment);
}

void SharedArena::end() {
  if (memory_) sanitizer::unpoison(memory_.get(), capacity_);
}

// Aligned to no more than asked for, so that code that hopes for more is found out.
std::byte* SharedArena::place(std::size_t bytes, std::size_t alignment) {
  const auto base = reinterpret_cast<std::uintptr_t>(memory_.get());
  const std::size_t unit = 2 * std::max(alignment, kNaturalAlignment);
  const std::uintptr_t address = (base + used_ + kGap + unit - 1) / unit * unit + alignment;
  used_ = address - base + bytes;
  auto* const p = memory_.get() + (address - base);
  sanitizer::unpoison(p, bytes);
  fill(p, bytes);
  sanitizer::mark_undefined(p, bytes);
  return p;
}

void* SharedArena::variable(const void* key, std::size_t bytes, std::size_t alignment) {
  for (int i = 0; i < variable_count_; ++i) {
    if (variables_[i].key == key) return variables_[i].address;
  }
  if (variable_count_ == kMaxVariables || static_bytes_ + bytes > kDefaultSharedBytes) return nullptr;
  static_bytes_ += bytes;
  void* const address = place(bytes, alignment);
  variables_[variable_count_++] = {key, address};
  return address;
}

const void* SharedArena::sync_address(int index, unsigned generation) const noexcept {
  return memory_.get() + (static_cast<std::size_t>(2 * index) + generation % 2) * kSyncAddressBytes;
}

}  // namespace bankml::host
