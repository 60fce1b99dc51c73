#pragma once
// The table of the kernels in matmul_kernels.hpp and float_dots.hpp.
#include "device/cpu/float_dots.hpp"
#include "device/cpu/matmul_kernels.hpp"

namespace bankml {
namespace {

inline MatmulKernel simd_matmul(DType type, bool packed) {
  if (type == DType::f32) return float_matmul<float>;
  if (type == DType::f16) return float_matmul<half>;
  if (type == DType::bf16) return bfloat16_matmul;
  MatmulKernel kernel = nullptr;
  if (packed) with_block(type, [&]<class Block>() { kernel = packed_matmul<Block>; });
  return kernel;
}

}  // namespace
}  // namespace bankml
