#include "device/cuda/backend.hpp"

#include "device/cuda/activation.hpp"
#include "device/cuda/expert_choice.hpp"
#include "device/cuda/ops.hpp"
#include "device/cuda/weight.hpp"

namespace KERNEL_NAMESPACE {

std::unique_ptr<Ops> make_ops(Device& device) {
  return std::make_unique<GpuOps>(device);
}

ShapeLimits shape_limits() noexcept {
  return {.head_dim = kMaxHeadDim,
          .head_dim_multiple = kHeadDimMultiple,
          .rotated = 2 * kMaxPairs,
          .experts_used = GpuExpertChoice::kMaxUsed};
}

void DeleteWeightLoader::operator()(WeightLoader* loader) const noexcept {
  delete loader;
}

WeightLoaderPtr make_weight_loader(Device& device) {
  return WeightLoaderPtr(new WeightLoader(device));
}

std::unique_ptr<Weight> make_experts(WeightLoader& loader, DType type, int experts, std::int64_t rows,
                                     std::int64_t cols, const std::byte* data, std::size_t stride) {
  return loader.load(type, experts, rows, cols, data, stride);
}

std::unique_ptr<ExpertChoice> make_expert_choice(Device& device, int max_rows, int experts, int used) {
  return std::make_unique<GpuExpertChoice>(device, max_rows, experts, used);
}

std::unique_ptr<Activation> make_activation(Device& device, std::int64_t max_rows, std::int64_t dim,
                                            ActFormats formats) {
  return std::make_unique<GpuActivation>(device, max_rows, dim, formats);
}

}  // namespace KERNEL_NAMESPACE
