#pragma once
// How the cells that a row sees are shared by the blocks of a grid: in whole blocks of cells, the same number of splits
// whatever the device, so that an answer depends on the conversation only.
#include "kv_cells.cuh"

namespace KERNEL_NAMESPACE {

struct CellBlocks {
  std::int64_t first, last;  // blocks [first, last)

  __device__ CellBlocks(std::int64_t begin_cell, std::int64_t end_cell, int split, int splits) {
    const std::int64_t begin = begin_cell / kCellsPerBlock, end = (end_cell + kCellsPerBlock - 1) / kCellsPerBlock;
    const std::int64_t each = (end - begin + splits - 1) / splits;
    first = begin + split * each;
    last = first + each < end ? first + each : end;
  }
};

// Where the partial result of a row, head and split is.
__device__ inline std::int64_t partial_index(const AttentionLaunch& args, std::int64_t row, int head, int split) {
  return (row * args.heads + head) * args.max_splits + split;
}

// The scale is divided by the cap already.
__device__ inline float soft_cap(float score, float cap) {
  return cap != 0.0f ? tanhf(score) * cap : score;
}

inline constexpr float kNothing = -INFINITY;

}  // namespace KERNEL_NAMESPACE
