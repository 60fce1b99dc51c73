#include "device/cpu/memory.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

std::size_t round_up(std::size_t bytes, std::size_t unit) noexcept {
  return (bytes + unit - 1) / unit * unit;
}

[[noreturn]] void throw_out_of_memory(std::size_t bytes) {
  throw Error(ErrorKind::out_of_memory, "can't allocate " + std::to_string(bytes) + " bytes of memory");
}

}  // namespace

Buffer allocate_memory(std::size_t bytes) {
  if (bytes >= 2 * kHugePage) {  // smaller ones would mostly be padding
    void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data == MAP_FAILED) throw_out_of_memory(bytes);
    madvise(data, bytes, MADV_HUGEPAGE);  // a hint: without it everything works, with more TLB misses
    return Buffer(
        data, bytes, [](void* p, std::size_t size, void*) { munmap(p, size); }, nullptr);
  }
  void* data = std::aligned_alloc(kAlignment, round_up(std::max<std::size_t>(bytes, 1), kAlignment));
  if (!data) throw_out_of_memory(bytes);
  return Buffer(
      data, bytes, [](void* p, std::size_t, void*) { std::free(p); }, nullptr);
}

}  // namespace bankml
