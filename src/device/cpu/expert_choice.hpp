#pragma once
// Which experts the rows of a batch go to. Pairs lie sorted by expert, so that an expert's rows are one piece.
#include <cstdint>
#include <memory>
#include <vector>

#include "bankml/device/device.hpp"
#include "device/cpu/activation.hpp"

namespace bankml {

class CpuExpertChoice final : public ExpertChoice {
 public:
  // Throws Error(invalid_request) unless 1 <= used <= experts.
  CpuExpertChoice(int max_rows, int experts, int used);

  // (rows, used), in the order of choice; places are filled by sort().
  std::int32_t* experts_of(std::int64_t row) noexcept { return expert_.data() + row * used(); }
  float* weights_of(std::int64_t row) noexcept { return weight_.data() + row * used(); }
  const float* weights_of(std::int64_t row) const noexcept { return weight_.data() + row * used(); }
  const std::int32_t* places_of(std::int64_t row) const noexcept { return place_.data() + row * used(); }

  // Places of the pairs of expert e: [begin(e), begin(e + 1)).
  std::int32_t begin(int e) const noexcept { return begin_[static_cast<std::size_t>(e)]; }
  void sort(int rows);

  // Rows for pairs with at least these formats, made when first asked for.
  CpuActivation& gathered(std::int64_t dim, ActFormats formats, const Kernels& kernels);

 private:
  std::vector<std::int32_t> expert_, place_, begin_;
  std::vector<float> weight_;
  std::unique_ptr<CpuActivation> gathered_;
};

}  // namespace bankml
