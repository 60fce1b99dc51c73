// act(gate) * up, in all forms of an activation. GELU is computed directly, as the peer's CUDA backend does (docs/arithmetic.md,
// 5.2); its CPU backend looks it up in a table of halves.
#include "activation.cuh"
#include "device/cuda/launchers.hpp"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kSpan = kThreads * kQuad;  // elements of a block

template <GluFunction kFunction>
__device__ float activate(float x) {
  if constexpr (kFunction == GluFunction::silu) return x / (1.0f + __expf(-x));
  const float inner = 0.79788456f * x * (1.0f + 0.044715f * x * x);
  return 0.5f * x * (1.0f + tanhf(inner));
}

template <GluFunction kFunction>
__global__ void __launch_bounds__(kThreads) glu_rows(ActivationPlanes out, const float* gate, const float* up, int rows) {
  const std::int64_t row = blockIdx.y;
  const int column = static_cast<int>(blockIdx.x) * kSpan + static_cast<int>(threadIdx.x) * kQuad;
  float x[kQuad], y[kQuad];
  load_quad(gate + row * out.dim, column, out.dim, x);
  load_quad(up + row * out.dim, column, out.dim, y);
  for (int i = 0; i < kQuad; ++i) y[i] = activate<kFunction>(x[i]) * y[i];
  store_activation(out, row, column, y, rows);
}

}  // namespace

void glu(Stream& stream, const ActivationPlanes& out, const float* gate, const float* up, int rows, GluFunction function) {
  const auto kernel = function == GluFunction::silu ? glu_rows<GluFunction::silu> : glu_rows<GluFunction::gelu>;
  launch(kernel, {.grid = {(out.dim + kSpan - 1) / kSpan, rows}, .block = kThreads}, stream, out, gate, up, rows);
}

}  // namespace KERNEL_NAMESPACE
