#include "device/cuda/backend.hpp"

#include "device/cuda/activation.hpp"
#include "device/cuda/ops.hpp"
#include "device/cuda/weight.hpp"

namespace KERNEL_NAMESPACE {

std::unique_ptr<Ops> make_ops(Device& device) {
  return std::make_unique<GpuOps>(device);
}

std::unique_ptr<Weight> make_weight(Device& device, DType type, std::int64_t rows, std::int64_t cols, const std::byte* data) {
  return WeightLoader(device).load(type, rows, cols, data);
}

std::unique_ptr<Activation> make_activation(Device& device, std::int64_t max_rows, std::int64_t dim, ActFormats formats) {
  return std::make_unique<GpuActivation>(device, max_rows, dim, formats);
}

}  // namespace KERNEL_NAMESPACE
