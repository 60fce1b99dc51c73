#pragma once
// What a kernel may use besides C++ and CUDA's own thread indices, barriers, integer intrinsics and math functions: for
// nvcc. The twin for g++ is tests/hostdev/device.cuh.
#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "bankml/base/numeric.hpp"
#include "kernels/launch_shape.hpp"
#include "namespace.hpp"

namespace bankml::cuda {

// A variable of the block: SHARED(float[32], partial). Its first value is undefined, its alignment that of its type.
#define SHARED(type, name) __shared__ std::type_identity_t<type> name

// `name` is a type* to the launch's dynamic shared memory, aligned to 16 bytes.
#define DYNAMIC_SHARED(type, name)                                       \
  extern __shared__ __align__(16) unsigned char dynamic_shared_memory[]; \
  type* const name = reinterpret_cast<type*>(dynamic_shared_memory)

// An object and not a function: it hides the host's bankml::to_float(), which argument-dependent lookup would find as
// well.
struct ToFloat {
  __device__ __forceinline__ float operator()(half h) const { return __half2float(__ushort_as_half(h.bits)); }
  __device__ __forceinline__ float operator()(bfloat16 b) const {
    return __uint_as_float(static_cast<unsigned>(b.bits) << 16);
  }
};
__device__ constexpr ToFloat to_float{};

// Rounds to nearest even; NaN stays NaN.
__device__ __forceinline__ half to_half(float f) {
  return {__half_as_ushort(__float2half_rn(f))};
}
__device__ __forceinline__ bfloat16 to_bfloat16(float f) {
  const unsigned bits = __float_as_uint(f);
  if (f != f) return {static_cast<std::uint16_t>((bits >> 16) | 0x40)};
  return {static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

// The two 16-bit floats of a 32-bit word, as 16-byte loads bring them; the low half first.
__device__ __forceinline__ float2 half2_to_float2(std::uint32_t word) {
  return __half22float2(*reinterpret_cast<const __half2*>(&word));
}
__device__ __forceinline__ float2 bfloat162_to_float2(std::uint32_t word) {
  return {__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u)};
}
__device__ __forceinline__ std::uint32_t float2_to_half2(float low, float high) {
  const __half2 both = __floats2half2_rn(low, high);
  return *reinterpret_cast<const std::uint32_t*>(&both);
}

// The stream's handle, and throwing for a CUDA error: src/device/cuda/stream.cpp.
cudaStream_t native_stream(Stream& stream);
void check_launch(cudaError_t code, const void* kernel, const LaunchShape& shape);
void check_shape(const LaunchShape& shape);

// Queues the kernel; arguments are copied. Throws Error(device) for a shape that no device takes.
template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), const LaunchShape& shape, Stream& stream, Arguments&&... arguments) {
  check_shape(shape);
  const auto extent = [](const LaunchExtent& e) {
    return dim3(static_cast<unsigned>(e.x), static_cast<unsigned>(e.y), static_cast<unsigned>(e.z));
  };
  cudaLaunchConfig_t config{};
  config.gridDim = extent(shape.grid);
  config.blockDim = extent(shape.block);
  config.dynamicSmemBytes = shape.shared;
  config.stream = native_stream(stream);
  check_launch(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
               reinterpret_cast<const void*>(kernel), shape);
}

// Lets the kernel be launched with so many bytes of dynamic shared memory, where that is more than the default of 48
// KiB for a block. Once before the first launch. Throws Error(device) if the device has less.
template <class... Parameters>
void allow_shared(void (*kernel)(Parameters...), std::size_t bytes,
                  std::source_location at = std::source_location::current()) {
  check_launch(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(bytes)),
               reinterpret_cast<const void*>(kernel), {.shared = bytes, .at = at});
}

}  // namespace bankml::cuda
