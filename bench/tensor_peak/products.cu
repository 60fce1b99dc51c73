#include "bench/tensor_peak/products.hpp"

#include "device.cuh"
#include "ptx.cuh"

namespace KERNEL_NAMESPACE {
namespace {

// Nothing is 0, which would save a device power and so make it faster; halves are near 1 and keep their size.
template <bench::TensorType kType>
__device__ inline std::uint32_t operand(unsigned i) {
  if constexpr (kType == bench::TensorType::int8) return 0x01020304u * (threadIdx.x + i + 1);
  const float x = 1.0f + static_cast<float>((threadIdx.x + i) % 61) / 64.0f;
  return float2_to_half2(x, -x);
}

template <bench::TensorType kType>
__global__ void __launch_bounds__(bench::kBlockThreads) multiply_tiles(std::uint32_t* out, int iterations) {
  MmaA a;
  MmaB b;
  for (unsigned i = 0; i < 4; ++i) a.x[i] = operand<kType>(i);
  for (unsigned i = 0; i < 2; ++i) b.x[i] = operand<kType>(7 + i);
  std::uint32_t sum = 0;
  if constexpr (kType == bench::TensorType::int8) {
    MmaInt c[bench::kTensorChains] = {};
    for (int n = 0; n < iterations; ++n) {
#pragma unroll
      for (int i = 0; i < bench::kTensorChains; ++i) c[i] = mma_m16n8k32_s8(a, b, c[i]);
    }
#pragma unroll
    for (int i = 0; i < bench::kTensorChains; ++i)
      sum ^= static_cast<std::uint32_t>(c[i].x[0] ^ c[i].x[1] ^ c[i].x[2] ^ c[i].x[3]);
  } else {
    MmaFloat c[bench::kTensorChains] = {};
    for (int n = 0; n < iterations; ++n) {
#pragma unroll
      for (int i = 0; i < bench::kTensorChains; ++i) c[i] = mma_m16n8k16_f16(a, b, c[i]);
    }
#pragma unroll
    for (int i = 0; i < bench::kTensorChains; ++i)
      sum ^= __float_as_uint(c[i].x[0]) ^ __float_as_uint(c[i].x[1]) ^ __float_as_uint(c[i].x[2]) ^
             __float_as_uint(c[i].x[3]);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

}  // namespace

void tensor_products(Stream& stream, bench::TensorType type, std::uint32_t* out, int blocks, int iterations) {
  const LaunchShape shape{.grid = blocks, .block = bench::kBlockThreads};
  if (type == bench::TensorType::int8) {
    launch(multiply_tiles<bench::TensorType::int8>, shape, stream, out, iterations);
  } else {
    launch(multiply_tiles<bench::TensorType::f16>, shape, stream, out, iterations);
  }
}

}  // namespace KERNEL_NAMESPACE
