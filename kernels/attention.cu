// Which kernel attends, and how its partial results become rows: merged in the order of splits, sinks added, turned
// back where V is quantised, divided, and written in all forms of an activation.
#include <cmath>

#include "activation.cuh"
#include "attention_split.cuh"
#include "kernels.cuh"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kSpan = kThreads * kPiece;

// Each 64 elements, those of 8 lanes, times the orthonormal Walsh-Hadamard matrix.
__device__ inline void walsh_hadamard_64(float (&y)[kPiece]) {
  constexpr float kScale = 0.125f;
  for (float& value : y) value *= kScale;
#pragma unroll
  for (int stride = 1; stride < kPiece; stride *= 2) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (i & stride) continue;
      const float u = y[i], v = y[i + stride];
      y[i] = u + v;
      y[i + stride] = u - v;
    }
  }
#pragma unroll
  for (int lanes = 1; lanes < 64 / kPiece; lanes *= 2) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      const float other = __shfl_xor_sync(kAllLanes, y[i], lanes);
      y[i] = threadIdx.x & lanes ? other - y[i] : y[i] + other;
    }
  }
}

__global__ void __launch_bounds__(kThreads)
    merge_splits(ActivationPlanes out, AttentionLaunch args, int head_dim, bool rotated) {
  const std::int64_t row = blockIdx.y;
  const int column = static_cast<int>(blockIdx.x) * kSpan + static_cast<int>(threadIdx.x) * kPiece;
  float y[kPiece] = {};
  if (column < out.dim) {
    const int head = column / head_dim;
    const std::int64_t first = partial_index(args, row, head, 0);
    const float* max_sum = args.partial_max_sum + 2 * first;
    float max = args.sinks ? args.sinks[head] : kNothing;
    for (int s = 0; s < args.max_splits; ++s) max = fmaxf(max, max_sum[2 * s]);
    float sum = args.sinks ? __expf(args.sinks[head] - max) : 0.0f;
    for (int s = 0; s < args.max_splits; ++s) {
      if (max_sum[2 * s + 1] == 0.0f) continue;  // its part of `partial` is not written
      const float weight = __expf(max_sum[2 * s] - max);
      sum = fmaf(weight, max_sum[2 * s + 1], sum);
      float part[kPiece];
      load_piece(args.partial + (first + s) * head_dim, column % head_dim, head_dim, part);
      for (int i = 0; i < kPiece; ++i) y[i] = fmaf(weight, part[i], y[i]);
    }
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    for (float& value : y) value *= inverse;
  }
  if (rotated) walsh_hadamard_64(y);
  store_activation(out, row, column, y);
}

}  // namespace

void attention(Stream& stream, const ActivationPlanes& out, const AttentionLaunch& args, const KvView& kv) {
  if (args.rows <= kVecRows || !attention_tiled(stream, args, kv)) attention_split(stream, args, kv);
  launch(merge_splits, {.grid = {(out.dim + kSpan - 1) / kSpan, args.rows}, .block = kThreads}, stream, out, args,
         kv.head_dim_v, kv.value_rotation != 0);
}

}  // namespace KERNEL_NAMESPACE
