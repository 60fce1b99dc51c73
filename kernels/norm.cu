// RMS norm of rows, written as activations, as floats, or added to a residual.
//
// Squares are summed in double precision, as on the CPU (docs/arithmetic.md, 3): whatever the order, the sum rounds to
// the same float, and so the integers behind it are the same. It costs little: a row has few squares beside the
// products it goes into.
#include "activation.cuh"
#include "device/cuda/launchers.hpp"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 256;

enum class NormTo { planes, floats, residual };

template <NormTo kTo>
__global__ void __launch_bounds__(kThreads) rms_norm_rows(ActivationPlanes out, float* floats, NormArgs args) {
  SHARED(double[kThreads / 32], partial);
  const std::int64_t row = blockIdx.x;
  const float* x = args.x + row * args.dim;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  float y[kPiece];
  double sum = 0;
  for (int column = threadIdx.x * kPiece; column < args.dim; column += kThreads * kPiece) {
    load_piece(x, column, args.dim, y);
    for (int i = 0; i < kPiece; ++i) sum += static_cast<double>(y[i] * y[i]);
  }
  sum = warp_sum(sum);
  if (lane == 0) partial[warp] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < kThreads / 32; ++w) sum += partial[w];
  const float mean = static_cast<float>(sum / args.dim);
  const float scale = 1.0f / sqrtf(mean + args.eps);

  for (int first = warp * kWarpSpan; first < args.dim; first += kThreads * kPiece) {
    const int column = first + lane * kPiece;
    load_piece(x, column, args.dim, y);
    for (int i = 0; i < kPiece; ++i) y[i] *= scale;
    if (args.weight) {
      float weight[kPiece];
      load_piece(args.weight, column, args.dim, weight);
      for (int i = 0; i < kPiece; ++i) y[i] *= weight[i];
    }
    if constexpr (kTo == NormTo::planes) {
      store_activation(out, row, column, y);
    } else {
      if constexpr (kTo == NormTo::residual) {
        float residual[kPiece];
        load_piece(floats + row * args.dim, column, args.dim, residual);
        for (int i = 0; i < kPiece; ++i) y[i] += residual[i];
      }
      store_piece(floats + row * args.dim, column, args.dim, y);
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
  launch(rms_norm_rows<NormTo::residual>, {.grid = args.rows, .block = kThreads}, stream, ActivationPlanes{}, residual,
         args);
}

}  // namespace KERNEL_NAMESPACE
