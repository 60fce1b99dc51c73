#pragma once
// How rows of floats are read and how they are written in every form of an activation: a lane holds eight neighbouring
// elements, four lanes a block of 32, a warp a super-block of 256.
#include "device.cuh"
#include "device/cuda/launchers.hpp"
#include "warp.cuh"

namespace KERNEL_NAMESPACE {

inline constexpr int kPiece = 8;               // elements of a lane
inline constexpr int kWarpSpan = 32 * kPiece;  // of a warp

// Elements column to column + 7 of a row; 0 beyond its end. Rows begin at multiples of 16 bytes where dim is a multiple
// of four.
__device__ inline void load_piece(const float* row, int column, int dim, float (&y)[kPiece]) {
  if (dim % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kPiece; i += 4) {
      const float4 v = column + i < dim ? *reinterpret_cast<const float4*>(row + column + i) : make_float4(0, 0, 0, 0);
      y[i] = v.x;
      y[i + 1] = v.y;
      y[i + 2] = v.z;
      y[i + 3] = v.w;
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kPiece; ++i) y[i] = column + i < dim ? row[column + i] : 0.0f;
}

__device__ inline void store_piece(float* row, int column, int dim, const float (&y)[kPiece]) {
  if (dim % 4 == 0) {
#pragma unroll
    for (int i = 0; i < kPiece; i += 4) {
      if (column + i < dim)
        *reinterpret_cast<float4*>(row + column + i) = make_float4(y[i], y[i + 1], y[i + 2], y[i + 3]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    if (column + i < dim) row[column + i] = y[i];
  }
}

__device__ inline float round_half(float x) {
  return to_float(to_half(x));
}

// n / max, or 0 where max is 0 or so small that the quotient is infinite: the scale of such a block is 0 too.
__device__ inline float quotient(float n, float max) {
  const float q = n / max;
  return max != 0.0f && fabsf(q) <= 3.4028235e38f ? q : 0.0f;
}

// The eight integers nearest to x * factor, ties to even; their sum.
__device__ inline int round_piece(const float (&x)[kPiece], float factor, std::int8_t* to, bool store) {
  std::uint32_t words[2] = {};
  int sum = 0;
#pragma unroll
  for (int i = 0; i < kPiece; ++i) {
    int q = __float2int_rn(x[i] * factor);
    q = q > 127 ? 127 : q < -128 ? -128 : q;
    words[i / 4] |= static_cast<std::uint32_t>(q & 255) << (i % 4 * 8);
    sum += q;
  }
  if (store) *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  return sum;
}

__device__ inline float largest_size(const float (&y)[kPiece]) {
  float most = 0;
#pragma unroll
  for (int i = 0; i < kPiece; ++i) most = fmaxf(most, fabsf(y[i]));
  return most;
}

// Blocks of 32 (docs/arithmetic.md, 2.3).
__device__ inline void quantize_q8(const ActivationPlanes& out, std::int64_t row, int column,
                                   const float (&y)[kPiece]) {
  const float most = warp_max<kUnit / kPiece>(largest_size(y));
  const bool inside = column < out.dim;
  std::int8_t* to = out.q8 + row * out.dim + column;
  const int sum = warp_sum<kUnit / kPiece>(round_piece(y, quotient(127.0f, most), to, inside));
  if (!inside || column % kUnit != 0) return;
  const std::int64_t block = row * (out.dim / kUnit) + column / kUnit;
  const float d = most / 127.0f;
  out.q8_d[block] = round_half(d);
  out.q8_s[block] = round_half(d * static_cast<float>(sum));
}

// Blocks of 256 (3.1): the element of largest size becomes -127, the first of several.
__device__ inline void quantize_q8_k(const ActivationPlanes& out, std::int64_t row, int column,
                                     const float (&y)[kPiece]) {
  const float size = largest_size(y), most = warp_max(size);
  float first = 0;
#pragma unroll
  for (int i = kPiece - 1; i >= 0; --i) first = fabsf(y[i]) == most ? y[i] : first;
  const int lane = __ffs(static_cast<int>(__ballot_sync(kAllLanes, size == most))) - 1;
  const float max = __shfl_sync(kAllLanes, first, lane < 0 ? 0 : lane);  // < 0: not numbers
  const float scale = quotient(-127.0f, max);
  const bool inside = column < out.dim;
  const int sum = warp_sum<16 / kPiece>(round_piece(y, scale, out.q8k + row * out.dim + column, inside));
  if (!inside) return;
  if (column % 16 == 0) out.q8k_sums[row * (out.dim / 16) + column / 16] = static_cast<std::int16_t>(sum);
  if (column % kWarpSpan == 0) out.q8k_d[row * (out.dim / kWarpSpan) + column / kWarpSpan] = quotient(1.0f, scale);
}

// Writes elements column to column + 7 of a row in all forms of `out`; elements beyond its end are 0. All lanes of a
// warp call it, with columns side by side that start at a multiple of kWarpSpan.
__device__ inline void store_activation(const ActivationPlanes& out, std::int64_t row, int column,
                                        const float (&y)[kPiece]) {
  if (out.f32) store_piece(out.f32 + row * out.dim, column, out.dim, y);
  if (out.f16 || out.bf16) {
#pragma unroll
    for (int i = 0; i < kPiece; ++i) {
      if (column + i >= out.dim) break;
      if (out.f16) out.f16[row * out.dim + column + i] = to_half(y[i]);
      if (out.bf16) out.bf16[row * out.dim + column + i] = to_bfloat16(y[i]);
    }
  }
  if (out.q8) quantize_q8(out, row, column, y);
  if (out.q8k) quantize_q8_k(out, row, column, y);
}

}  // namespace KERNEL_NAMESPACE
