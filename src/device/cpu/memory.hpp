#pragma once
#include <cstddef>
#include <memory>
#include <mutex>

#include "bankml/device/device.hpp"

namespace bankml {

// Memory aligned to 64 bytes, contents undefined; large pieces may use huge pages. Throws Error(out_of_memory) naming
// the size.
Buffer allocate_memory(std::size_t bytes);

inline constexpr int kNoNumaNode = -1;

// Lets pages of this memory that nobody has touched yet lie on a node of a machine with several, if there is room: a
// device beside another processor reads them at a part of the speed. A hint; nothing is done for kNoNumaNode, or for
// less than a page.
void prefer_numa_node(const Buffer& memory, int node) noexcept;

// Hands out pieces of large chunks. Weights are read from end to end for every token, and most are smaller than the
// huge pages that make this fast (13.8 against 19.6 GB/s on one Zen 3 core). A chunk is freed with the last of its
// pieces.
class MemoryArena {
 public:
  // Aligned to 64 bytes; any thread. Throws Error(out_of_memory).
  Buffer allocate(std::size_t bytes);

 private:
  std::mutex mutex_;
  std::shared_ptr<Buffer> chunk_;
  std::size_t used_ = 0;
};

}  // namespace bankml
