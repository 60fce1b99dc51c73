#include "bench/tensor_peak/products.hpp"

#include "device.cuh"
#include "ptx.cuh"

namespace KERNEL_NAMESPACE {
namespace {

// Operands are never 0, which would save a device power and so make it faster; halves are near 1 and keep their size.
template <bench::TensorType kType>
struct Products;

template <>
struct Products<bench::TensorType::int8> {
  using Sums = MmaInt;
  static __device__ std::uint32_t operand(unsigned i) { return 0x01020304u * (threadIdx.x + i + 1); }
  static __device__ Sums add(const MmaA& a, const MmaB& b, const Sums& c) { return mma_m16n8k32_s8(a, b, c); }
  static __device__ std::uint32_t bits(std::int32_t sum) { return static_cast<std::uint32_t>(sum); }
};

template <>
struct Products<bench::TensorType::f16> {
  using Sums = MmaFloat;
  static __device__ std::uint32_t operand(unsigned i) {
    const float x = 1.0f + static_cast<float>((threadIdx.x + i) % 61) / 64.0f;
    return float2_to_half2(x, -x);
  }
  static __device__ Sums add(const MmaA& a, const MmaB& b, const Sums& c) { return mma_m16n8k16_f16(a, b, c); }
  static __device__ std::uint32_t bits(float sum) { return __float_as_uint(sum); }
};

template <bench::TensorType kType>
__global__ void __launch_bounds__(bench::kBlockThreads) multiply_tiles(std::uint32_t* out, int iterations) {
  using P = Products<kType>;
  MmaA a;
  MmaB b;
  for (unsigned i = 0; i < 4; ++i) a.x[i] = P::operand(i);
  for (unsigned i = 0; i < 2; ++i) b.x[i] = P::operand(7 + i);
  typename P::Sums c[bench::kTensorChains] = {};
  for (int n = 0; n < iterations; ++n) {
#pragma unroll
    for (int i = 0; i < bench::kTensorChains; ++i) c[i] = P::add(a, b, c[i]);
  }
  std::uint32_t sum = 0;
#pragma unroll
  for (int i = 0; i < bench::kTensorChains; ++i) {
#pragma unroll
    for (int k = 0; k < 4; ++k) sum ^= P::bits(c[i].x[k]);
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
