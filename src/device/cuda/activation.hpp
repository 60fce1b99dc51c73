#pragma once
// Rows of activations in the memory of a GPU, or of what stands for one.
#include "bankml/device/device.hpp"
#include "device/cuda/launchers.hpp"

namespace KERNEL_NAMESPACE {

class GpuActivation final : public Activation {
 public:
  // Throws Error(invalid_request) if `dim` is no multiple of the block length that a format needs,
  // Error(out_of_memory).
  GpuActivation(Device& device, std::int64_t max_rows, std::int64_t dim, ActFormats formats);

  float* f32() noexcept override { return planes_.f32; }
  const ActivationPlanes& planes() const noexcept { return planes_; }

 private:
  Buffer memory_;
  ActivationPlanes planes_;
};

}  // namespace KERNEL_NAMESPACE
