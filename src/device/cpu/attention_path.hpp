#pragma once
// Which of the three ways of the peer's attention a batch takes (docs/arithmetic.md, 2.8 and 5). Their roundings
// differ, so the choice is part of the arithmetic.
#include <cstdint>

#include "bankml/base/numeric.hpp"

namespace bankml {

enum class AttentionPath {
  one_chunk,  // path A: cell after cell, halves as accumulators where V is half
  split,      // path B: the same in chunks, merged
  tiled,      // path C: tiles of 64 cells, floats
};

inline constexpr int kTiledRows = 64;             // rows of the whole batch from which on it is tiled
inline constexpr std::int64_t kSplitCells = 512;  // padded cells from which on a single row is split

// `rows`: of the whole batch, whatever their sequence. `padded_cells` matters to a single row only.
inline AttentionPath attention_path(int rows, std::int64_t padded_cells, DType type_k, DType type_v, int head_dim_k,
                                    int head_dim_v) {
  const bool floats = type_k == type_v && (type_k == DType::f16 || type_k == DType::f32);
  if (!floats) return AttentionPath::one_chunk;
  if (rows == 1 && padded_cells >= kSplitCells) return AttentionPath::split;
  if (rows >= kTiledRows && head_dim_k % 16 == 0 && head_dim_v % 16 == 0) return AttentionPath::tiled;
  return AttentionPath::one_chunk;
}

}  // namespace bankml
