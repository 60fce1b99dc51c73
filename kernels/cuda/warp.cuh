#pragma once
// Reductions over the lanes of a warp, for nvcc. All 32 lanes take part, and each gets the result of its group of
// kWidth neighbouring lanes: the additions of a butterfly, the largest distance first, so that every lane has the same
// bits.
#include "device.cuh"

namespace bankml::cuda {

inline constexpr unsigned kAllLanes = 0xffffffffu;

template <int kWidth = 32, class T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int distance = kWidth / 2; distance > 0; distance /= 2) value += __shfl_xor_sync(kAllLanes, value, distance);
  return value;
}

template <int kWidth = 32>
__device__ __forceinline__ float warp_max(float value) {
#pragma unroll
  for (int distance = kWidth / 2; distance > 0; distance /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, distance));
  }
  return value;
}

// Barrier `id` (1 to 15) among `threads` threads, whole warps, of the block. The one barrier whose threads may stand at
// different lines.
__device__ __forceinline__ void named_barrier(int id, int threads) {
  asm volatile("barrier.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace bankml::cuda
