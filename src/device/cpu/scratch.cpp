#include "device/cpu/scratch.hpp"

#include <algorithm>

namespace bankml {

std::byte* scratch(ScratchUse use, std::size_t bytes) {
  thread_local Buffer pieces[3];
  Buffer& piece = pieces[static_cast<std::size_t>(use)];
  if (piece.bytes() < bytes) {
    const std::size_t grown = std::max(bytes, piece.bytes() + piece.bytes() / 2);
    piece = Buffer();  // the old piece goes first: both at once could be too much
    piece = allocate_memory(aligned_size(grown));
  }
  return piece.data();
}

}  // namespace bankml
