#pragma once
// How rows of floats are read and how they are written in every form of an activation: a lane holds four neighbouring elements,
// a warp 128, eight lanes a block of 32.
#include "device.cuh"
#include "device/cuda/launchers.hpp"
#include "warp.cuh"

namespace KERNEL_NAMESPACE {

inline constexpr int kQuad = 4;                // elements of a lane
inline constexpr int kWarpSpan = 32 * kQuad;   // of a warp

// Elements column to column + 3 of a row; 0 beyond its end. Rows begin at multiples of 16 bytes where dim is a multiple of four.
__device__ inline void load_quad(const float* row, int column, int dim, float (&y)[kQuad]) {
  if (dim % kQuad == 0 && column < dim) {
    const float4 v = *reinterpret_cast<const float4*>(row + column);
    y[0] = v.x;
    y[1] = v.y;
    y[2] = v.z;
    y[3] = v.w;
    return;
  }
  for (int i = 0; i < kQuad; ++i) y[i] = column + i < dim ? row[column + i] : 0.0f;
}

__device__ inline void store_quad(float* row, int column, int dim, const float (&y)[kQuad]) {
  if (dim % kQuad == 0) {
    if (column < dim) *reinterpret_cast<float4*>(row + column) = make_float4(y[0], y[1], y[2], y[3]);
    return;
  }
  for (int i = 0; i < kQuad && column + i < dim; ++i) row[column + i] = y[i];
}

// The largest of a block below which 127 / amax is infinite: its integers are 0.
inline constexpr float kSmallestMax = 1e-36f;

// A block of 32 as integers, by one of the peer's two rules (docs/gguf.md, 4.2). `divide`: for mat-vec.
__device__ inline void quantize_quad(const ActivationPlanes& out, std::int64_t row, int column, const float (&y)[kQuad], bool divide) {
  const float amax = warp_max<8>(fmaxf(fmaxf(fabsf(y[0]), fabsf(y[1])), fmaxf(fabsf(y[2]), fabsf(y[3]))));
  const float sum = warp_sum<8>((y[0] + y[1]) + (y[2] + y[3]));
  const bool zero = !(amax >= kSmallestMax);
  const float inverse = zero ? 0.0f : 127.0f / amax;
  const float d = zero ? 0.0f : divide ? amax / 127.0f : 1.0f / inverse;
  std::uint32_t packed = 0;
  int total = 0;
  for (int i = 0; i < kQuad; ++i) {
    const float scaled = zero ? 0.0f : divide ? y[i] / d : y[i] * inverse;
    const int q = static_cast<int>(roundf(fminf(fmaxf(scaled, -127.0f), 127.0f)));  // half away from zero
    packed |= static_cast<std::uint32_t>(q & 255) << (8 * i);
    total += q;
  }
  if (out.sums) total = warp_sum<4>(total);
  if (column >= out.dim) return;
  *reinterpret_cast<std::uint32_t*>(out.q + row * out.dim + column) = packed;
  if (column % kUnit == 0) {
    const std::int64_t block = row * (out.dim / kUnit) + column / kUnit;
    out.d[block] = divide ? to_float(to_half(d)) : d;
    out.s[block] = to_float(to_half(sum));
  }
  if (out.sums && column % 16 == 0) out.sums[row * (out.dim / 16) + column / 16] = static_cast<std::int16_t>(total);
}

// Writes elements column to column + 3 of a row in all forms of `out`; elements beyond its end are 0. All lanes of a warp call it,
// with columns side by side that start at a multiple of kWarpSpan. `rows` of the batch decide how integers are rounded.
__device__ inline void store_activation(const ActivationPlanes& out, std::int64_t row, int column, const float (&y)[kQuad], int rows) {
  if (out.f32) store_quad(out.f32 + row * out.dim, column, out.dim, y);
  for (int i = 0; i < kQuad && column + i < out.dim; ++i) {
    if (out.f16) out.f16[row * out.dim + column + i] = to_half(y[i]);
    if (out.bf16) out.bf16[row * out.dim + column + i] = to_bfloat16(y[i]);
  }
  if (out.q) quantize_quad(out, row, column, y, rows <= kVecRows);
}

}  // namespace KERNEL_NAMESPACE
