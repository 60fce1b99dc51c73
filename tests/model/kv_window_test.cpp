// Layers with a window: which cells a sequence takes for them, and what of them is saved (docs/prompt-cache.md, 3.4).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "bankml/base/error.hpp"
#include "bankml/model/kv_pool.hpp"

namespace bankml {
namespace {

using ::testing::ElementsAre;

constexpr int kWindow = 64, kCells = 256, kUbatch = 32;

// A layer that sees everything and `window_layers` that see 64 positions; two KV heads of 32 values.
ModelConfig layers_with_a_window(int window_layers) {
  ModelConfig config;
  config.layers = 1 + window_layers;
  config.head_dim_k = config.head_dim_v = 32;
  LayerConfig layer;
  layer.kv_heads = 2;
  config.layer = {layer};
  layer.window = kWindow;
  config.layer.insert(config.layer.end(), static_cast<std::size_t>(window_layers), layer);
  return config;
}

class KvWindowTest : public ::testing::Test {
 protected:
  std::unique_ptr<Device> device = make_cpu_device(1);
  std::unique_ptr<Stream> stream = device->make_stream();
  ModelConfig config = layers_with_a_window(2);
  KvPool pool{*device, config, DType::f16, DType::f16, 0, kCells};

  // As forward passes do it.
  void extend(KvSequence& sequence, std::int64_t n) {
    while (sequence.length() < n) {
      sequence.extend(std::min<std::int64_t>(n, sequence.length() + kUbatch), pool, *stream);
    }
  }
  static const KvCells& window(const KvSequence& sequence) { return sequence.part(KvPart::window); }

  // The last value of the last layer's V in the cell of a position: the end of what is stored for it.
  std::byte* row(const KvCells& cells, std::int64_t position) const {
    const KvLayout& kv = pool.layout(config.layers - 1);
    const std::int64_t cell = cells.cell_of(position),
                       bytes = static_cast<std::int64_t>(row_bytes(kv.type_v, kv.head_dim_v));
    return cells.blocks()[static_cast<std::size_t>(cell / kBlockCells)].data() + kv.v_offset +
           ((kv.kv_heads - 1) * kBlockCells + cell % kBlockCells) * bytes;
  }
  void write(const KvSequence& sequence, std::int64_t position) const {
    std::memset(row(window(sequence), position), static_cast<int>(position % 251), 1);
  }
  bool holds(const KvSequence& sequence, std::int64_t position) const {
    return *row(window(sequence), position) == static_cast<std::byte>(position % 251);
  }
};

TEST_F(KvWindowTest, KeepsLayersWithAWindowInBlocksOfTheirOwn) {
  constexpr std::size_t kLayerBytes = 2 * 2 * 64 * 32 * 2;  // K and V, heads, positions, values, bytes
  EXPECT_EQ(pool.block_bytes(KvPart::full), kLayerBytes);
  EXPECT_EQ(pool.block_bytes(KvPart::window), 2 * kLayerBytes);
}

// llama-server b11192 with such a cache, as its log tells: 8, 40 and 44 are the smallest positions it holds.
TEST_F(KvWindowTest, UsesCellsAgainWhosePositionHasLeftTheWindow) {
  KvSequence sequence;
  extend(sequence, 256);
  EXPECT_TRUE(window(sequence).in_order());
  EXPECT_EQ(window(sequence).first_position(), 0);
  extend(sequence, 264);
  EXPECT_EQ(window(sequence).first_position(), 8);
  EXPECT_EQ(window(sequence).cell_of(256), 0);
  extend(sequence, 296);
  EXPECT_EQ(window(sequence).first_position(), 40);
  sequence.extend(300, pool, *stream);
  EXPECT_EQ(window(sequence).first_position(), 44);
  EXPECT_EQ(window(sequence).cells(), kCells);
  EXPECT_EQ(sequence.part(KvPart::full).cells(), 300);
}

TEST_F(KvWindowTest, TakesNoMoreMemoryHoweverLongTheSequence) {
  KvSequence sequence;
  extend(sequence, 5000);
  EXPECT_EQ(window(sequence).blocks().size(), 4u);
  EXPECT_EQ(pool.blocks_in_use(), 4u + (5000 + 63) / 64);
}

TEST_F(KvWindowTest, KeepsEverythingWhereTheCellsAreNotLimited) {
  KvPool unlimited(*device, config, DType::f16, DType::f16, 0);
  KvSequence sequence;
  sequence.extend(1000, unlimited, *stream);
  EXPECT_TRUE(window(sequence).in_order());
  EXPECT_EQ(window(sequence).cells(), 1000);
}

TEST_F(KvWindowTest, FillsFromTheFirstCellThatATruncationFreed) {
  KvSequence sequence;
  extend(sequence, 266);  // 256 to 265 are in cells 0 to 9
  sequence.truncate(250);
  EXPECT_EQ(window(sequence).cells(), 250) << "cells 250 to 255 are empty too";
  extend(sequence, 252);
  EXPECT_EQ(window(sequence).cell_of(250), 0);
  EXPECT_EQ(window(sequence).cell_of(251), 1);
}

TEST_F(KvWindowTest, SavesTheWindowOnly) {
  KvSequence sequence;
  extend(sequence, 200);
  const KvSequence saved = sequence.saved(pool);
  sequence.truncate(0);
  EXPECT_EQ(window(saved).first_position(), 200 - kWindow);
  EXPECT_EQ(pool.blocks_in_use(), 4u + 2u) << "positions 136 to 199 lie in two blocks of cells";
}

TEST_F(KvWindowTest, SharesTheBlocksOfAStateThatComesBackToItsCells) {
  KvSequence sequence, other;
  extend(sequence, 60);
  const KvSequence saved = sequence.saved(pool);
  other.restore(saved, pool, *stream);
  EXPECT_EQ(window(other).blocks()[0].data(), window(sequence).blocks()[0].data());
  EXPECT_EQ(pool.blocks_in_use(), 2u);
}

// The peer writes a state into successive cells, in the order of the old ones.
TEST_F(KvWindowTest, RestoresIntoTheFirstCellsInTheOldOrder) {
  KvSequence sequence, other;
  extend(sequence, 266);
  for (std::int64_t p = 266 - kWindow; p < 266; ++p) write(sequence, p);
  other.restore(sequence.saved(pool), pool, *stream);
  ASSERT_EQ(window(other).cells(), kWindow);
  EXPECT_EQ(other.length(), 266);
  EXPECT_EQ(window(other).cell_of(256), 0) << "was in cell 0";
  EXPECT_EQ(window(other).cell_of(265), 9);
  EXPECT_EQ(window(other).cell_of(202), 10) << "was in cell 202";
  EXPECT_EQ(window(other).cell_of(255), 63);
  for (std::int64_t p = 266 - kWindow; p < 266; ++p) EXPECT_TRUE(holds(other, p)) << "position " << p;
}

TEST_F(KvWindowTest, ForgetsThePositionsBelowOneThatIsOverwritten) {
  KvSequence sequence, other;
  extend(sequence, 266);
  other.restore(sequence.saved(pool), pool, *stream);  // cells 0 to 9: 256 to 265; cells 10 to 63: 202 to 255
  extend(other, 266 + 192);                            // fills cells 64 to 255
  EXPECT_EQ(window(other).first_position(), 202);
  other.extend(266 + 193, pool, *stream);  // takes cell 0
  EXPECT_EQ(window(other).first_position(), 257);
}

TEST_F(KvWindowTest, ACheckpointBringsTheWindowBackAndLeavesTheRest) {
  KvSequence sequence;
  extend(sequence, 100);
  for (std::int64_t p = 36; p < 100; ++p) write(sequence, p);
  const KvCells checkpoint = sequence.saved_window(pool);
  extend(sequence, 420);
  EXPECT_GT(window(sequence).first_position(), 100);
  sequence.restore_window(checkpoint, pool, *stream);
  sequence.truncate(99);
  EXPECT_EQ(sequence.length(), 99);
  EXPECT_EQ(sequence.part(KvPart::full).cells(), 99);
  EXPECT_EQ(window(sequence).first_position(), 36);
  for (std::int64_t p = 36; p < 99; ++p) EXPECT_TRUE(holds(sequence, p)) << "position " << p;
}

TEST_F(KvWindowTest, CountsWhatIsHeldOfTheWindow) {
  KvSequence sequence;
  extend(sequence, 100);
  EXPECT_EQ(window(sequence).count_from(36), 64);
  EXPECT_EQ(window(sequence).count_from(-10), 100);
  sequence.restore_window(sequence.saved_window(pool), pool, *stream);
  sequence.truncate(99);
  EXPECT_EQ(window(sequence).count_from(35), 63) << "position 35 went with the checkpoint";
}

TEST_F(KvWindowTest, ACheckpointIsNotChangedByWhatFollows) {
  KvSequence sequence;
  extend(sequence, 100);
  for (std::int64_t p = 36; p < 100; ++p) write(sequence, p);
  const KvCells checkpoint = sequence.saved_window(pool);
  extend(sequence, 101);
  std::memset(window(sequence).blocks()[1].data(), 0, pool.block_bytes(KvPart::window));
  KvSequence other;
  other.restore_window(checkpoint, pool, *stream);
  EXPECT_TRUE(holds(other, 99));
}

TEST_F(KvWindowTest, MovesPositionsInBothParts) {
  KvSequence sequence;
  extend(sequence, 10);
  const KvSequence::Run runs[] = {{0, 2, 0}, {5, 5, 2}};
  sequence.keep(runs, pool, *stream);
  for (const KvPart part : kKvParts) {
    EXPECT_THAT(sequence.part(part).position_of(), ElementsAre(0, 1, -1, -1, -1, 2, 3, 4, 5, 6));
  }
}

TEST_F(KvWindowTest, RefusesToGrowBeyondTheMemoryAndLeavesTheSequenceAsItWas) {
  KvPool small(*device, config, DType::f16, DType::f16, 3, kCells);
  KvSequence sequence;
  sequence.extend(192, small, *stream);
  EXPECT_THROW(sequence.extend(193, small, *stream), Error);
  EXPECT_EQ(sequence.length(), 192);
  EXPECT_EQ(window(sequence).cells(), 192);
}

// A slot file of llama-server b11192 with 300 tokens of such a model: 180900 bytes, of which 1228 are its head; a state
// in memory has 8 bytes more. A checkpoint is the window layers' part of it.
TEST_F(KvWindowTest, CountsBytesAsThePeerDoes) {
  const KvPool six(*device, layers_with_a_window(6), DType::f16, DType::f16, 0, kCells);
  EXPECT_EQ(six.accounted_bytes(300, 64), 180900u - 1228 + 8);
  EXPECT_EQ(six.accounted_bytes(10, 10), 18428u - 68 + 8);
  EXPECT_EQ(six.accounted_checkpoint_bytes(64), 8u + 16 + 6 * 24 + 64 * (12 + 6 * 256));
  EXPECT_EQ(six.accounted_bytes(10, 10, 2), six.accounted_bytes(10, 10) + 8)
      << "4 for a further stream, in either part";
}

}  // namespace
}  // namespace bankml
