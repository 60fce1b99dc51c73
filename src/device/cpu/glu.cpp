#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "device/cpu/activation.hpp"
#include "device/cpu/float_kernels.hpp"
#include "device/cpu/ops.hpp"
#include "device/cpu/scratch.hpp"

namespace bankml {
namespace {

constexpr std::size_t kHalves = 1 << 16;

// The tanh form of GELU for every half, as the peer tabulates it (docs/arithmetic.md, 4).
const half* gelu_table() {
  static const std::unique_ptr<const half[]> table = [] {
    auto values = std::make_unique<half[]>(kHalves);
    for (std::size_t bits = 0; bits < kHalves; ++bits) {
      const float x = to_float(half{static_cast<std::uint16_t>(bits)});
      const float inner = (0.79788456f * x) * std::fma(0.044715f * x, x, 1.0f);
      values[bits] = to_half(0.5f * x * (1.0f + std::tanh(inner)));
    }
    return values;
  }();
  return table.get();
}

// With the exponential of the C library (docs/arithmetic.md, 4).
void clamped_swiglu(float* out, const float* gate, const float* up, std::int64_t n) {
  constexpr float kLimit = 7.0f, kAlpha = 1.702f;
  for (std::int64_t i = 0; i < n; ++i) {
    const float g = std::min(gate[i], kLimit), u = std::clamp(up[i], -kLimit, kLimit);
    out[i] = g / (1.0f + std::exp(kAlpha * -g)) * (u + 1.0f);
  }
}

}  // namespace

void CpuOps::glu(Stream&, Activation& out, const float* gate, const float* up, int rows, GluKind kind) {
  auto& activation = static_cast<CpuActivation&>(out);
  const std::int64_t dim = out.dim();
  const bool floats = has(out.formats(), ActFormats::f32);
  const half* table = kind == GluKind::gelu ? gelu_table() : nullptr;
  const std::size_t bytes = floats ? 0 : static_cast<std::size_t>(dim) * sizeof(float);
  for_each_with_scratch(pool_, rows, bytes, [&](std::int64_t row, std::byte* memory) {
    float* y = floats ? activation.f32_row(row) : reinterpret_cast<float*>(memory);
    if (kind == GluKind::silu) {
      floats_.silu_mul(y, gate + row * dim, up + row * dim, static_cast<int>(dim));
    } else if (kind == GluKind::clamped_swiglu) {
      clamped_swiglu(y, gate + row * dim, up + row * dim, dim);
    } else {
      floats_.gelu_mul(y, gate + row * dim, up + row * dim, table, static_cast<int>(dim));
    }
    quantize_row(activation, row, y);
  });
}

}  // namespace bankml
