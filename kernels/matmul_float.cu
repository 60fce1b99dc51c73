// Float weights and more rows than mat-vec takes, where cuBLAS is absent: a plain tiled kernel. Products and sums are
// single precision for every type, so that it is also what a faster kernel is compared with.
#include "kernels.cuh"
#include "matmul_output.cuh"
#include "weight_unit.cuh"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 64;      // weight rows and rows of activations of a block
constexpr int kStep = 16;      // elements of a row at a time
constexpr int kPerThread = 4;  // a thread has 4 x 4 outputs
constexpr int kPitch = kTile + 4;

// Elements k0 to k0 + kStep - 1 of kTile rows, transposed; 0 beyond the ends.
template <class T>
__device__ inline void load_tile(float (&to)[kStep][kPitch], const T* from, std::int64_t first, std::int64_t rows,
                                 int cols, int k0) {
  for (int i = threadIdx.x; i < kTile * kStep; i += kThreads) {
    const int row = i / kStep, k = k0 + i % kStep;
    to[i % kStep][row] = first + row < rows && k < cols ? widen(from[(first + row) * cols + k]) : 0.0f;
  }
}

struct Tiles {
  float w[kStep][kPitch], x[kStep][kPitch];
};

template <class T>
__global__ void __launch_bounds__(kThreads) multiply_float_tiles(MatmulJob job, const T* x) {
  SHARED(Tiles, tiles);
  const int block = static_cast<int>(blockIdx.x), p = part_of(job, block);
  const MatmulPart& part = job.part[p];
  const std::int64_t first_weight = std::int64_t{block - job.first_block[p]} * kTile;
  const int first_row = static_cast<int>(blockIdx.y) * kTile, cols = part.weight.cols;
  const int w0 = static_cast<int>(threadIdx.x) % 16 * kPerThread, x0 = static_cast<int>(threadIdx.x) / 16 * kPerThread;
  float sums[kPerThread][kPerThread] = {};
  for (int k0 = 0; k0 < cols; k0 += kStep) {
    load_tile(tiles.w, reinterpret_cast<const T*>(part.weight.low), first_weight, part.weight.rows, cols, k0);
    load_tile(tiles.x, x, first_row, job.rows, cols, k0);
    __syncthreads();
    for (int k = 0; k < kStep; ++k) {
      for (int i = 0; i < kPerThread; ++i) {
        for (int j = 0; j < kPerThread; ++j) sums[i][j] = fmaf(tiles.w[k][w0 + j], tiles.x[k][x0 + i], sums[i][j]);
      }
    }
    __syncthreads();
  }
  for (int i = 0; i < kPerThread && first_row + x0 + i < job.rows; ++i) {
    for (int j = 0; j < kPerThread && first_weight + w0 + j < part.weight.rows; ++j) {
      write_output(part, first_weight + w0 + j, first_row + x0 + i, sums[i][j]);
    }
  }
}

__global__ void __launch_bounds__(kThreads) add_bias_and_residual(MatmulPart part, std::int64_t n) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < n) write_output(part, i % part.weight.rows, i / part.weight.rows, part.out[i]);
}

}  // namespace

void finish_outputs(Stream& stream, const MatmulPart& part, int rows) {
  const std::int64_t n = part.weight.rows * rows;
  launch(add_bias_and_residual, {.grid = (n + kThreads - 1) / kThreads, .block = kThreads}, stream, part, n);
}

void matmul_float(Stream& stream, const MatmulPart* parts, int n, const ActivationPlanes& a, int rows) {
  const MatmulJob job = make_job(parts, n, a, rows, kTile);
  const LaunchShape shape{.grid = {job.first_block[n], (rows + kTile - 1) / kTile}, .block = kThreads};
  if (parts[0].weight.type == DType::f32) launch(multiply_float_tiles<float>, shape, stream, job, a.f32);
  if (parts[0].weight.type == DType::f16) launch(multiply_float_tiles<half>, shape, stream, job, a.f16);
  if (parts[0].weight.type == DType::bf16) launch(multiply_float_tiles<bfloat16>, shape, stream, job, a.bf16);
}

}  // namespace KERNEL_NAMESPACE
