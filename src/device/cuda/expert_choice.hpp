#pragma once
// Which experts the rows of a batch go to, in device memory. A pair is a row and one of its experts, row after row in
// the order of choice.
#include <string>

#include "bankml/base/error.hpp"
#include "bankml/device/device.hpp"
#include "device/cuda/launchers.hpp"
#include "namespace.hpp"

namespace KERNEL_NAMESPACE {

class GpuExpertChoice final : public ExpertChoice {
 public:
  static constexpr int kMaxUsed = 32;  // a lane of a warp each

  // Throws Error(invalid_request) unless 1 <= used <= experts, Error(unsupported) for more than kMaxUsed,
  // Error(out_of_memory).
  GpuExpertChoice(Device& device, int max_rows, int experts, int used) : ExpertChoice(max_rows, experts, used) {
    if (max_rows < 1 || used < 1 || used > experts) {
      throw Error(ErrorKind::invalid_request, "experts: expected from 1 to " + std::to_string(experts) +
                                                  " for each row, got " + std::to_string(used));
    }
    if (used > kMaxUsed) {
      throw Error(ErrorKind::unsupported, "experts: at most " + std::to_string(kMaxUsed) +
                                              " for each row on this device, got " + std::to_string(used));
    }
    const std::size_t pairs = static_cast<std::size_t>(max_rows) * static_cast<std::size_t>(used);
    expert_ = device.allocate(pairs * sizeof(std::int32_t));
    weight_ = device.allocate(pairs * sizeof(float));
    if (max_rows <= kVecRows) return;  // never grouped
    sorted_ = device.allocate(pairs * sizeof(std::int32_t));
    tiles_ = device.allocate(static_cast<std::size_t>(group_tiles(max_rows * used, experts)) * sizeof(ExpertTile));
  }

  std::int32_t* expert() const noexcept { return expert_.as<std::int32_t>(); }  // (rows, used)
  float* weight() const noexcept { return weight_.as<float>(); }                // (rows, used)
  std::int32_t* sorted() const noexcept { return sorted_.as<std::int32_t>(); }
  ExpertTile* tiles() const noexcept { return tiles_.as<ExpertTile>(); }

 private:
  Buffer expert_, weight_, sorted_, tiles_;
};

}  // namespace KERNEL_NAMESPACE
