// act(gate) * up, in all forms of an activation. GELU goes through halves, as on the CPU (docs/arithmetic.md, 4), whose
// table holds these values.
#include "activation.cuh"
#include "device/cuda/launchers.hpp"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kSpan = kThreads * kPiece;  // elements of a block

// gpt-oss: docs/arithmetic.md, 4.
constexpr float kGateLimit = 7.0f, kGateSlope = 1.702f;

template <GluFunction kFunction>
__device__ float activate(float x) {
  if constexpr (kFunction == GluFunction::silu) return x / (1.0f + expf(-x));
  if constexpr (kFunction == GluFunction::clamped_swiglu) {
    const float gate = fminf(x, kGateLimit);
    return gate / (1.0f + expf(kGateSlope * -gate));
  }
  if (x <= -10.0f) return 0.0f;
  if (x >= 10.0f) return x;
  const float h = round_half(x), inner = 0.79788456f * h * fmaf(0.044715f * h, h, 1.0f);
  return round_half(0.5f * h * (1.0f + tanhf(inner)));
}

template <GluFunction kFunction>
__global__ void __launch_bounds__(kThreads) glu_rows(ActivationPlanes out, const float* gate, const float* up) {
  const std::int64_t row = blockIdx.y;
  const int column = static_cast<int>(blockIdx.x) * kSpan + static_cast<int>(threadIdx.x) * kPiece;
  float x[kPiece], y[kPiece];
  load_piece(gate + row * out.dim, column, out.dim, x);
  load_piece(up + row * out.dim, column, out.dim, y);
  for (int i = 0; i < kPiece; ++i) {
    if constexpr (kFunction == GluFunction::clamped_swiglu) y[i] = fminf(fmaxf(y[i], -kGateLimit), kGateLimit) + 1.0f;
    y[i] = activate<kFunction>(x[i]) * y[i];
  }
  store_activation(out, row, column, y);
}

}  // namespace

void glu(Stream& stream, const ActivationPlanes& out, const float* gate, const float* up, int rows,
         GluFunction function) {
  const auto kernel = function == GluFunction::silu   ? glu_rows<GluFunction::silu>
                      : function == GluFunction::gelu ? glu_rows<GluFunction::gelu>
                                                      : glu_rows<GluFunction::clamped_swiglu>;
  launch(kernel, {.grid = {(out.dim + kSpan - 1) / kSpan, rows}, .block = kThreads}, stream, out, gate, up);
}

}  // namespace KERNEL_NAMESPACE
