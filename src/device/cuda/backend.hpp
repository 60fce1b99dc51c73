#pragma once
// The parts of a Device that both builds of the kernels share: the computations and what they keep in its memory. Each
// build has them in a namespace of its own.
#include <cstddef>
#include <cstdint>
#include <memory>

#include "bankml/device/ops.hpp"
#include "bankml/device/shape_limits.hpp"
#include "namespace.hpp"

namespace KERNEL_NAMESPACE {

// `device` gives memory and streams, and outlives what is made.
std::unique_ptr<Ops> make_ops(Device& device);
// What its operations refuse.
ShapeLimits shape_limits() noexcept;
class WeightLoader;
struct DeleteWeightLoader {
  void operator()(WeightLoader* loader) const noexcept;
};
// Loads weights one after the other. It takes 8 MiB of pinned memory with the first one and keeps them.
using WeightLoaderPtr = std::unique_ptr<WeightLoader, DeleteWeightLoader>;
WeightLoaderPtr make_weight_loader(Device& device);
// As Device's.
std::unique_ptr<Weight> make_experts(WeightLoader& loader, DType type, int experts, std::int64_t rows,
                                     std::int64_t cols, const std::byte* data, std::size_t stride);
std::unique_ptr<ExpertChoice> make_expert_choice(Device& device, int max_rows, int experts, int used);
std::unique_ptr<Activation> make_activation(Device& device, std::int64_t max_rows, std::int64_t dim,
                                            ActFormats formats);

}  // namespace KERNEL_NAMESPACE
