#include "bankml/model/kv_pool.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

ModelConfig two_layers() {
  ModelConfig config;
  config.layers = 2;
  config.head_dim_k = config.head_dim_v = 64;
  LayerConfig layer;
  layer.kv_heads = 3;
  config.layer = {layer, layer};
  return config;
}

class KvPoolTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<Stream> stream = device->make_stream();
  ModelConfig config = two_layers();
  KvPool pool{*device, config, DType::f16, DType::f16, 0};

  void extend(KvSequence& sequence, std::int64_t n) { sequence.extend(n, pool, *stream); }
  static void mark(const KvSequence& sequence, std::size_t block, char c) {
    std::memset(sequence.part(KvPart::full).blocks()[block].data(), c, 16);
  }
  static char marked(const KvSequence& sequence, std::size_t block) {
    return static_cast<char>(sequence.part(KvPart::full).blocks()[block].data()[0]);
  }
};

// 2 layers x (K + V) x 3 heads x 64 positions x 64 values x 2 bytes.
TEST_F(KvPoolTest, ABlockHoldsSixtyFourPositionsOfAllLayers) {
  EXPECT_EQ(pool.block_bytes(KvPart::full), 2u * 2 * 3 * 64 * 64 * 2);
}

// docs/prompt-cache.md: 24 + 12 n + layers x (24 + n x (K row + V row)).
TEST_F(KvPoolTest, CountsBytesAsThePeerDoes) {
  EXPECT_EQ(pool.accounted_bytes(0), 24u + 2 * 24);
  EXPECT_EQ(pool.accounted_bytes(10), 24u + 120 + 2 * (24 + 10 * (384 + 384)));
}

TEST_F(KvPoolTest, CountsQuantisedRowsByTheirBlocks) {
  KvPool quantised(*device, config, DType::q8_0, DType::f16, 0);
  EXPECT_EQ(quantised.accounted_bytes(1), 24u + 12 + 2 * (24 + 6 * 34 + 384));
}

TEST_F(KvPoolTest, GivesBlocksBackWhenASequenceIsCut) {
  KvSequence sequence;
  extend(sequence, 130);
  EXPECT_EQ(pool.blocks_in_use(), 3u);
  sequence.truncate(64);
  EXPECT_EQ(pool.blocks_in_use(), 1u);
  EXPECT_EQ(sequence.part(KvPart::full).cells(), 64);
  sequence.truncate(0);
  EXPECT_EQ(pool.blocks_in_use(), 0u);
}

TEST_F(KvPoolTest, ACopySharesTheBlocks) {
  KvSequence sequence;
  extend(sequence, 130);
  const KvSequence saved = sequence;
  EXPECT_EQ(pool.blocks_in_use(), 3u);
  EXPECT_EQ(saved.part(KvPart::full).blocks()[2].data(), sequence.part(KvPart::full).blocks()[2].data());
}

TEST_F(KvPoolTest, CopiesASharedBlockBeforeItIsWritten) {
  KvSequence sequence;
  extend(sequence, 100);
  mark(sequence, 0, 'a');
  mark(sequence, 1, 'b');
  const KvSequence saved = sequence;
  extend(sequence, 101);
  mark(sequence, 1, 'x');
  EXPECT_EQ(marked(saved, 1), 'b');
  EXPECT_EQ(marked(sequence, 0), 'a');
  EXPECT_EQ(saved.part(KvPart::full).blocks()[0].data(), sequence.part(KvPart::full).blocks()[0].data())
      << "what isn't written stays shared";
  EXPECT_EQ(pool.blocks_in_use(), 3u);
}

TEST_F(KvPoolTest, WritesInPlaceWhereNothingIsShared) {
  KvSequence sequence;
  extend(sequence, 100);
  const std::byte* block = sequence.part(KvPart::full).blocks()[1].data();
  extend(sequence, 128);
  EXPECT_EQ(sequence.part(KvPart::full).blocks()[1].data(), block);
}

TEST_F(KvPoolTest, RefusesMoreBlocksThanItMayTakeAndLeavesTheSequenceAsItWas) {
  KvPool small(*device, config, DType::f16, DType::f16, 2);
  KvSequence sequence;
  sequence.extend(128, small, *stream);
  EXPECT_THROW(sequence.extend(129, small, *stream), Error);
  EXPECT_EQ(sequence.part(KvPart::full).cells(), 128);
  EXPECT_EQ(small.blocks_in_use(), 2u);
}

TEST_F(KvPoolTest, FillsTheLowestFreeCellsAfterPositionsWereDropped) {
  KvSequence sequence;
  extend(sequence, 10);
  // Positions 2 to 4 go: 5 to 9 become 2 to 6 and stay in cells 5 to 9.
  const KvSequence::Run runs[] = {{0, 2, 0}, {5, 5, 2}};
  sequence.keep(runs, pool, *stream);
  EXPECT_EQ(sequence.length(), 7);
  EXPECT_THAT(sequence.part(KvPart::full).position_of(), ElementsAre(0, 1, -1, -1, -1, 2, 3, 4, 5, 6));
  extend(sequence, 11);
  EXPECT_THAT(sequence.part(KvPart::full).position_of(), ElementsAre(0, 1, 7, 8, 9, 2, 3, 4, 5, 6, 10));
  EXPECT_EQ(sequence.part(KvPart::full).cell_of(7), 2);
  EXPECT_EQ(sequence.part(KvPart::full).cell_of(10), 10);
}

TEST_F(KvPoolTest, FreesTheCellsOfPositionsThatAreCut) {
  KvSequence sequence;
  extend(sequence, 6);
  const KvSequence::Run runs[] = {{0, 1, 0}, {3, 3, 1}};
  sequence.keep(runs, pool, *stream);
  extend(sequence, 6);
  EXPECT_THAT(sequence.part(KvPart::full).position_of(), ElementsAre(0, 4, 5, 1, 2, 3));
  sequence.truncate(4);
  EXPECT_THAT(sequence.part(KvPart::full).position_of(), ElementsAre(0, -1, -1, 1, 2, 3));
  extend(sequence, 5);
  EXPECT_EQ(sequence.part(KvPart::full).cell_of(4), 1);
}

TEST_F(KvPoolTest, IsInOrderAgainWhenOnlyThePrefixIsLeft) {
  KvSequence sequence;
  extend(sequence, 6);
  const KvSequence::Run runs[] = {{0, 4, 0}};
  sequence.keep(runs, pool, *stream);
  EXPECT_TRUE(sequence.part(KvPart::full).in_order());
  EXPECT_EQ(sequence.length(), 4);
}

TEST_F(KvPoolTest, MovedCellsAreNoLongerShared) {
  KvSequence sequence;
  extend(sequence, 70);
  const KvSequence saved = sequence;
  const KvSequence::Run runs[] = {{0, 1, 0}, {65, 5, 1}};
  sequence.keep(runs, pool, *stream);
  EXPECT_EQ(sequence.part(KvPart::full).blocks()[0].data(), saved.part(KvPart::full).blocks()[0].data());
  EXPECT_NE(sequence.part(KvPart::full).blocks()[1].data(), saved.part(KvPart::full).blocks()[1].data());
}

}  // namespace
}  // namespace bankml
