// RMS norm of rows, written as activations, as floats, or added to a residual.
//
// Squares are summed in single precision, the peer's CUDA rounding (docs/arithmetic.md, 5.2); the root is exact where the peer's is
// approximate.
#include "activation.cuh"
#include "device/cuda/launchers.hpp"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 256;

enum class NormTo { planes, floats, residual };

template <NormTo kTo>
__global__ void __launch_bounds__(kThreads) rms_norm_rows(ActivationPlanes out, float* floats, NormArgs args) {
  SHARED(float[kThreads / 32], partial);
  const std::int64_t row = blockIdx.x;
  const float* x = args.x + row * args.dim;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float y[kQuad], sum = 0;
  for (int column = threadIdx.x * kQuad; column < args.dim; column += kThreads * kQuad) {
    load_quad(x, column, args.dim, y);
    for (int i = 0; i < kQuad; ++i) sum = fmaf(y[i], y[i], sum);
  }
  sum = warp_sum(sum);
  if (lane == 0) partial[warp] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += partial[w];
  const float scale = 1.0f / sqrtf(sum / static_cast<float>(args.dim) + args.eps);

  for (int first = warp * kWarpSpan; first < args.dim; first += kThreads * kQuad) {
    const int column = first + lane * kQuad;
    load_quad(x, column, args.dim, y);
    for (int i = 0; i < kQuad; ++i) y[i] *= scale;
    if (args.weight) {
      float weight[kQuad];
      load_quad(args.weight, column, args.dim, weight);
      for (int i = 0; i < kQuad; ++i) y[i] *= weight[i];
    }
    if constexpr (kTo == NormTo::planes) {
      store_activation(out, row, column, y, args.rows);
    } else {
      if constexpr (kTo == NormTo::residual) {
        float residual[kQuad];
        load_quad(floats + row * args.dim, column, args.dim, residual);
        for (int i = 0; i < kQuad; ++i) y[i] += residual[i];
      }
      store_quad(floats + row * args.dim, column, args.dim, y);
    }
  }
}

}  // namespace

void rms_norm(Stream& stream, const ActivationPlanes& out, const NormArgs& args) {
  launch(rms_norm_rows<NormTo::planes>, {.grid = args.rows, .block = kThreads}, stream, out, nullptr, args);
}
void rms_norm_floats(Stream& stream, float* out, const NormArgs& args) {
  launch(rms_norm_rows<NormTo::floats>, {.grid = args.rows, .block = kThreads}, stream, ActivationPlanes{}, out, args);
}
void rms_norm_add(Stream& stream, float* residual, const NormArgs& args) {
  launch(rms_norm_rows<NormTo::residual>, {.grid = args.rows, .block = kThreads}, stream, ActivationPlanes{}, residual, args);
}

}  // namespace KERNEL_NAMESPACE
