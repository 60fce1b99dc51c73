#include "device.cuh"
#include "device/cuda/launchers.hpp"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) scale_softcap_elements(float* x, std::int64_t n, float scale, float cap) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= n) return;
  float value = x[i];
  if (scale != 1.0f) value *= scale;
  if (cap != 0.0f) value = tanhf(value * (1.0f / cap)) * cap;
  x[i] = value;
}

}  // namespace

void scale_softcap(Stream& stream, float* x, std::int64_t n, float scale, float cap) {
  const int blocks = static_cast<int>((n + kThreads - 1) / kThreads);
  launch(scale_softcap_elements, {.grid = blocks, .block = kThreads}, stream, x, n, scale, cap);
}

}  // namespace KERNEL_NAMESPACE
