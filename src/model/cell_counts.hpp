#pragma once
#include <cstdint>

#include "bankml/device/ops.hpp"

namespace bankml {

// Attention spans are padded to this many cells, as the peer pads them (docs/prompt-cache.md, section 4).
inline constexpr std::int64_t kCellPadding = 256;

inline std::int64_t padded(std::int64_t cells) noexcept {
  return (cells + kCellPadding - 1) / kCellPadding * kCellPadding;
}

inline std::int64_t blocks_for(std::int64_t cells) noexcept {
  return (cells + kBlockCells - 1) / kBlockCells;
}

}  // namespace bankml
