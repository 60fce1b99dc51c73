#include "engine/memory_plan.hpp"

#include <gtest/gtest.h>

namespace bankml {
namespace {

// Blocks of 10 bytes for layers that see all, of 1 byte for those with a window of 128 cells.
KvDemand demand(int slots, bool shared) {
  return {
      .full_block_bytes = 10, .window_block_bytes = 1, .slots = slots, .shared_context = shared, .window_cells = 128};
}

TEST(MemoryPlan, CountsBlocksOfSixtyFourCellsAndOneForCopiesOfEachSlot) {
  const KvBlocks one = blocks_for_context(demand(1, true), 300);
  EXPECT_EQ(one.full, 5u + 1);
  EXPECT_EQ(one.window, 2u + 1);
  EXPECT_EQ(one.bytes(demand(1, true)), 63u);
  EXPECT_EQ(blocks_for_context(demand(3, false), 300).full, 3u * 5 + 3);
  EXPECT_EQ(blocks_for_context(demand(3, true), 300).full, 5u + 3);
  EXPECT_EQ(blocks_for_context(demand(3, true), 300).window, 3u * 3);
}

TEST(MemoryPlan, APartWithoutLayersTakesNothing) {
  KvDemand all = demand(1, true);
  all.window_block_bytes = 0;
  EXPECT_EQ(blocks_for_context(all, 300).window, 0u);
}

// 256 tokens: 4 + 1 blocks of 10 bytes, 3 of 1 byte.
TEST(MemoryPlan, FindsTheLargestContextThatFits) {
  EXPECT_EQ(context_that_fits(demand(1, true), 4096, 52), 0);
  EXPECT_EQ(context_that_fits(demand(1, true), 4096, 53), 256);
  EXPECT_EQ(context_that_fits(demand(1, true), 4096, 92), 256);
  EXPECT_EQ(context_that_fits(demand(1, true), 4096, 93), 512);
  EXPECT_EQ(context_that_fits(demand(1, true), 4096, 1'000'000), 4096);
  EXPECT_EQ(context_that_fits(demand(1, true), 0, 1'000'000), 0);
}

TEST(MemoryPlan, SparesAsManyBlocksAgainButAtMostHalfOfTheRest) {
  const KvBlocks needed = blocks_for_context(demand(1, true), 256);
  EXPECT_EQ(spare_blocks(demand(1, true), needed, 53).full, 0u);
  EXPECT_EQ(spare_blocks(demand(1, true), needed, 53 + 53).full, 2u) << "half as many";
  EXPECT_EQ(spare_blocks(demand(1, true), needed, 1'000'000).full, needed.full);
  EXPECT_EQ(spare_blocks(demand(1, true), needed, 1'000'000).window, needed.window);
  EXPECT_EQ(spare_blocks(demand(1, true), needed, 10).full, 0u);
}

}  // namespace
}  // namespace bankml
