#pragma once
// Addresses in the KV blocks of a batch, and which cells a row sees.
#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "bankml/device/ops.hpp"
#include "device/cpu/float_kernels.hpp"

namespace bankml {

inline std::byte* block_of(const BatchView& batch, std::int32_t sequence, std::int64_t block) noexcept {
  return batch.blocks[sequence * batch.blocks_stride + block];
}

inline std::byte* k_row(const KvLayout& kv, std::byte* block, int kv_head, int slot) noexcept {
  const std::int64_t row = kv_head * kBlockCells + slot;
  return block + kv.k_offset + row * static_cast<std::int64_t>(kv_row_bytes(kv.type_k, kv.head_dim_k));
}
inline std::byte* v_row(const KvLayout& kv, std::byte* block, int kv_head, int slot) noexcept {
  const std::int64_t row = kv_head * kBlockCells + slot;
  return block + kv.v_offset + row * static_cast<std::int64_t>(kv_row_bytes(kv.type_v, kv.head_dim_v));
}

// The cells that one row sees, as a bit for each cell of a block.
class VisibleCells {
 public:
  VisibleCells(const BatchView& batch, std::int64_t row, int window) noexcept
      : position_(batch.position[row]), window_(window), end_(batch.cells[batch.sequence[row]]) {
    if (batch.cell_position) {
      held_ = batch.cell_position + batch.sequence[row] * batch.cell_position_stride;
    } else {
      end_ = std::min<std::int64_t>(end_, std::int64_t{position_} + 1);
      if (window > 0) begin_ = std::max<std::int64_t>(0, std::int64_t{position_} - window + 1);
    }
  }

  // Blocks [first, last) hold everything that is seen.
  std::int64_t first_block() const noexcept { return begin_ / kBlockCells; }
  std::int64_t last_block() const noexcept { return (end_ + kBlockCells - 1) / kBlockCells; }

  std::uint64_t of_block(std::int64_t block) const noexcept {
    const std::int64_t first = block * kBlockCells;
    const std::uint64_t range = below(end_ - first) & ~below(begin_ - first);
    if (!held_ || range == 0) return range;
    std::uint64_t seen = 0;
    const int count = static_cast<int>(std::min<std::int64_t>(kBlockCells, end_ - first));
    for (int i = 0; i < count; ++i) seen |= std::uint64_t{sees(held_[first + i])} << i;
    return seen;
  }

  // The first `count` bits.
  static std::uint64_t below(std::int64_t count) noexcept {
    if (count <= 0) return 0;
    return count >= kBlockCells ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
  }

 private:
  bool sees(std::int32_t held) const noexcept {
    return held >= 0 && held <= position_ && (window_ <= 0 || position_ - held < window_);
  }

  std::int32_t position_;
  int window_;
  std::int64_t begin_ = 0, end_;
  const std::int32_t* held_ = nullptr;
};

}  // namespace bankml
