#include "engine/memory_plan.hpp"

#include <algorithm>

#include "bankml/device/ops.hpp"

namespace bankml {
namespace {

constexpr std::int64_t kContextUnit = 256;

std::uint64_t blocks_for(std::int64_t cells) noexcept {
  return static_cast<std::uint64_t>((cells + kBlockCells - 1) / kBlockCells);
}

}  // namespace

KvBlocks blocks_for_context(const KvDemand& demand, std::int64_t context) noexcept {
  const auto slots = static_cast<std::uint64_t>(demand.slots);
  KvBlocks blocks;
  if (demand.full_block_bytes > 0) blocks.full = (demand.shared_context ? 1 : slots) * blocks_for(context) + slots;
  if (demand.window_block_bytes > 0) blocks.window = slots * (blocks_for(std::min(context, demand.window_cells)) + 1);
  return blocks;
}

std::int64_t context_that_fits(const KvDemand& demand, std::int64_t most, std::uint64_t bytes) noexcept {
  std::int64_t fits = 0, too_much = most / kContextUnit + 1;  // in units
  while (fits + 1 < too_much) {
    const std::int64_t middle = fits + (too_much - fits) / 2;
    (blocks_for_context(demand, middle * kContextUnit).bytes(demand) <= bytes ? fits : too_much) = middle;
  }
  return fits * kContextUnit;
}

KvBlocks spare_blocks(const KvDemand& demand, const KvBlocks& needed, std::uint64_t free_bytes) noexcept {
  const std::uint64_t bytes = needed.bytes(demand);
  if (bytes == 0 || free_bytes <= bytes) return {};
  const double part = std::min(1.0, static_cast<double>(free_bytes - bytes) / 2 / static_cast<double>(bytes));
  return {static_cast<std::uint64_t>(part * static_cast<double>(needed.full)),
          static_cast<std::uint64_t>(part * static_cast<double>(needed.window))};
}

}  // namespace bankml
