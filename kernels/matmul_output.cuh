#pragma once
#include "device.cuh"
#include "device/cuda/launchers.hpp"

namespace KERNEL_NAMESPACE {

// Several weights multiply the same rows in one launch: the blocks of part p are first_block[p] to first_block[p + 1]
// - 1.
struct MatmulJob {
  MatmulPart part[kMaxOutputs];
  int first_block[kMaxOutputs + 1];
  int n;
  ActivationPlanes a;
  int rows;  // of activations
  // expert: nullptr for a plain weight; else the second dimension of the grid are the pairs, and rows is 1, or their
  // tiles.
  ExpertPairs experts;
};

inline MatmulJob make_job(const MatmulPart* parts, int n, const ActivationPlanes& a, int rows,
                          int weight_rows_per_block) {
  MatmulJob job{};
  job.n = n;
  job.a = a;
  job.rows = rows;
  for (int p = 0; p < n; ++p) {
    job.part[p] = parts[p];
    job.first_block[p + 1] = job.first_block[p] + static_cast<int>((parts[p].weight.rows + weight_rows_per_block - 1) /
                                                                   weight_rows_per_block);
  }
  return job;
}

// The part that a block works on.
__device__ inline int part_of(const MatmulJob& job, int block) {
  int p = 0;
  while (p + 1 < job.n && block >= job.first_block[p + 1]) ++p;
  return p;
}

// `first_bias`: of the expert.
__device__ inline void write_output(const MatmulPart& part, std::int64_t weight_row, std::int64_t row, float value,
                                    std::int64_t first_bias = 0) {
  const std::int64_t at = row * part.weight.rows + weight_row;
  if (part.bias) value += part.bias[first_bias + weight_row];
  if (part.scale != 1.0f) value *= part.scale;
  if (part.residual) value += part.residual[at];
  part.out[at] = value;
}

}  // namespace KERNEL_NAMESPACE
