// The operations that move rows: embedding lookup, quantisation, gathering.
#include "activation.cuh"
#include "device/cuda/launchers.hpp"
#include "weight_unit.cuh"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kSpan = kThreads * kPiece;

// A thread widens a unit.
template <class Block>
__global__ void __launch_bounds__(kThreads)
    embed_blocks(float* x, WeightPlanes table, const std::int32_t* tokens, float scale) {
  const int unit = static_cast<int>(blockIdx.x * kThreads + threadIdx.x), units = table.cols / kUnit;
  if (unit >= units) return;
  WeightUnit<Block> w;
  load_unit(table, std::int64_t{tokens[blockIdx.y]} * units + unit, w);
  float* to = x + std::int64_t{blockIdx.y} * table.cols + unit * kUnit;
  for (int e = 0; e < kUnit; e += kPiece) {
    float y[kPiece];
    for (int i = 0; i < kPiece; ++i) {
      y[i] = unit_value(w, e + i);
      if (scale != 1.0f) y[i] *= scale;
    }
    store_piece(to, e, kUnit, y);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    embed_floats(float* x, WeightPlanes table, const std::int32_t* tokens, float scale) {
  const int column = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (column >= table.cols) return;
  const T* from = reinterpret_cast<const T*>(table.low) + std::int64_t{tokens[blockIdx.y]} * table.cols;
  const float value = widen(from[column]);
  x[std::int64_t{blockIdx.y} * table.cols + column] = scale != 1.0f ? value * scale : value;
}

__global__ void __launch_bounds__(kThreads) gather(float* to, const float* from, const std::int32_t* rows, int dim) {
  const int column = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (column < dim) to[std::int64_t{blockIdx.y} * dim + column] = from[std::int64_t{rows[blockIdx.y]} * dim + column];
}

__global__ void __launch_bounds__(kThreads) quantize_rows(ActivationPlanes out, const float* x) {
  const std::int64_t row = blockIdx.y;
  const int column = static_cast<int>(blockIdx.x) * kSpan + static_cast<int>(threadIdx.x) * kPiece;
  float y[kPiece];
  load_piece(x + row * out.dim, column, out.dim, y);
  store_activation(out, row, column, y);
}

int blocks_for(int n, int per_block) {
  return (n + per_block - 1) / per_block;
}

}  // namespace

void embed(Stream& stream, float* x, const WeightPlanes& table, const std::int32_t* tokens, int rows, float scale) {
  if (dtype_info(table.type).block_len == 1) {
    const auto kernel = table.type == DType::f32   ? embed_floats<float>
                        : table.type == DType::f16 ? embed_floats<half>
                                                   : embed_floats<bfloat16>;
    launch(kernel, {.grid = {blocks_for(table.cols, kThreads), rows}, .block = kThreads}, stream, x, table, tokens,
           scale);
    return;
  }
  with_block(table.type, [&]<class Block>() {
    launch(embed_blocks<Block>, {.grid = {blocks_for(table.cols / kUnit, kThreads), rows}, .block = kThreads}, stream,
           x, table, tokens, scale);
  });
}

void gather_rows(Stream& stream, float* to, const float* from, const std::int32_t* rows, int n, int dim) {
  launch(gather, {.grid = {blocks_for(dim, kThreads), n}, .block = kThreads}, stream, to, from, rows, dim);
}

void quantize(Stream& stream, const ActivationPlanes& out, const float* x, int rows) {
  launch(quantize_rows, {.grid = {blocks_for(out.dim, kSpan), rows}, .block = kThreads}, stream, out, x);
}

}  // namespace KERNEL_NAMESPACE
