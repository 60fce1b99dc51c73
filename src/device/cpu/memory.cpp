#include "device/cpu/memory.hpp"

#include <linux/mempolicy.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;
constexpr std::size_t kChunk = std::size_t{64} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

[[noreturn]] void throw_out_of_memory(std::size_t bytes) {
  throw Error(ErrorKind::out_of_memory, "can't allocate " + std::to_string(bytes) + " bytes of memory");
}

// Starts at a huge page: of a mapping that is larger by one, the ends are given back.
Buffer map_memory(std::size_t bytes) {
  const std::size_t rounded = round_up(bytes, kHugePage);
  if (rounded < bytes) throw_out_of_memory(bytes);
  void* mapping = mmap(nullptr, rounded + kHugePage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED) throw_out_of_memory(bytes);
  auto* begin = static_cast<std::byte*>(mapping);
  const std::size_t before =
      round_up(reinterpret_cast<std::uintptr_t>(begin), kHugePage) - reinterpret_cast<std::uintptr_t>(begin);
  if (before != 0) munmap(begin, before);
  munmap(begin + before + rounded, kHugePage - before);
  madvise(begin + before, rounded, MADV_HUGEPAGE);  // a hint: without it everything works, with more TLB misses
  const auto release = [](void* data, std::size_t size, void*) { munmap(data, round_up(size, kHugePage)); };
  return Buffer(begin + before, bytes, release, nullptr);
}

}  // namespace

Buffer allocate_memory(std::size_t bytes) {
  if (bytes >= 2 * kHugePage) return map_memory(bytes);  // smaller ones would mostly be padding
  void* data = std::aligned_alloc(kAlignment, round_up(std::max<std::size_t>(bytes, 1), kAlignment));
  if (!data) throw_out_of_memory(bytes);
  return Buffer(
      data, bytes, [](void* p, std::size_t, void*) { std::free(p); }, nullptr);
}

// Straight to the kernel: the C library has no function for it, and libnuma would be one more package.
void prefer_numa_node(const Buffer& memory, int node) noexcept {
  constexpr int kMaxNode = 1024;
  constexpr std::size_t kBits = 8 * sizeof(unsigned long);
  if (node < 0 || node >= kMaxNode) return;
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const std::size_t begin = round_up(reinterpret_cast<std::uintptr_t>(memory.data()), page);
  const std::size_t end = (reinterpret_cast<std::uintptr_t>(memory.data()) + memory.bytes()) / page * page;
  if (begin >= end) return;
  std::array<unsigned long, kMaxNode / kBits> nodes{};
  nodes[static_cast<std::size_t>(node) / kBits] = 1UL << (static_cast<std::size_t>(node) % kBits);
  // The kernel takes one bit less than it is told.
  (void)syscall(SYS_mbind, begin, end - begin, MPOL_PREFERRED, nodes.data(), kMaxNode + 1, 0);
}

Buffer MemoryArena::allocate(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  if (!chunk_ || bytes > chunk_->bytes() - used_) {
    chunk_ = std::make_shared<Buffer>(map_memory(std::max(bytes, kChunk)));
    used_ = 0;
  }
  auto keep = std::make_unique<std::shared_ptr<Buffer>>(chunk_);
  std::byte* const data = chunk_->data() + used_;
  used_ = std::min(chunk_->bytes(), used_ + round_up(bytes, kAlignment));
  const auto release = [](void*, std::size_t, void* chunk) { delete static_cast<std::shared_ptr<Buffer>*>(chunk); };
  return Buffer(data, bytes, release, keep.release());
}

}  // namespace bankml
