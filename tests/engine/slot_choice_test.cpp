#include "bankml/engine/slot_choice.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

// The worked examples of docs/prompt-cache.md, section 8.1, under their names there.
namespace bankml {
namespace {

using Tokens = std::vector<TokenId>;
using By = SlotChoice::By;

constexpr float kDefaultThreshold = 0.1f;

// `common` tokens of the prompt, then others up to `size`.
Tokens slot_tokens(std::size_t common, std::size_t size) {
  Tokens tokens(size);
  std::iota(tokens.begin(), tokens.end(), 1);
  for (std::size_t i = common; i < size; ++i) tokens[i] = -1 - static_cast<TokenId>(i);
  return tokens;
}

Tokens prompt_tokens(std::size_t n) {
  return slot_tokens(n, n);
}

struct Example {
  const char* name;
  std::size_t common, prompt, slot;
  float threshold;
  std::int64_t id_slot;
  By by;
  bool due;
};

TEST(SlotChoice, FollowsTheExamplesOfOneSlot) {
  constexpr float t = kDefaultThreshold;
  const Example examples[] = {
      {"S1", 0, 5, 0, t, -1, By::least_recent, true},
      {"S2", 5, 6, 5, t, -1, By::similarity, false},
      {"S3", 1, 10, 1, t, -1, By::least_recent, true},
      {"S4", 1, 9, 1, t, -1, By::similarity, false},
      {"S5", 1, 11, 2, t, -1, By::least_recent, true},
      {"S6", 2, 4, 4, t, -1, By::similarity, false},
      {"S7", 13, 22, 26, t, -1, By::similarity, true},
      {"S8", 7, 23, 14, t, -1, By::similarity, true},
      {"S9", 13, 22, 25, t, -1, By::similarity, false},
      {"S10", 21, 21, 42, t, -1, By::similarity, false},
      {"S11", 21, 21, 84, t, -1, By::similarity, true},
      {"S12", 0, 5, 0, t, 0, By::id, false},
      {"S13", 0, 5, 5, t, 0, By::id, true},
      {"S14", 1, 10, 1, t, 0, By::id, true},
      {"S15", 5, 6, 5, t, 0, By::id, false},
      {"S16", 5, 6, 5, t, 5, By::id, true},
      {"S17", 5, 6, 5, 0.0f, -1, By::least_recent, true},
      {"S18", 5, 6, 5, 0.0f, 0, By::id, false},
      {"S19", 6, 6, 6, 1.0f, -1, By::least_recent, true},
  };
  for (const Example& example : examples) {
    const Tokens slot = slot_tokens(example.common, example.slot);
    const SlotView view{slot, false, 1};
    const SlotChoice choice =
        choose_slot({&view, 1}, prompt_tokens(example.prompt), example.id_slot, example.threshold);
    EXPECT_EQ(choice.slot, 0u) << example.name;
    EXPECT_EQ(choice.by, example.by) << example.name;
    EXPECT_EQ(choice.due, example.due) << example.name;
  }
}

TEST(SlotChoice, S7ComputesTheHalfRuleInSinglePrecision) {
  const Tokens slot = slot_tokens(13, 26);
  const SlotView view{slot, false, 1};
  const SlotChoice choice = choose_slot({&view, 1}, prompt_tokens(22), -1, kDefaultThreshold);
  EXPECT_EQ(choice.similarity, 0.59090906f);
  EXPECT_EQ(choice.keep, 0.49999997f);
}

TEST(SlotChoice, S12DividesZeroByZeroForAnEmptySlotChosenById) {
  const SlotView view{};
  EXPECT_TRUE(std::isnan(choose_slot({&view, 1}, prompt_tokens(5), 0, kDefaultThreshold).keep));
}

TEST(SlotChoice, M1TakesTheLastOfFreshSlots) {
  const std::vector<SlotView> slots(4);
  const SlotChoice choice = choose_slot(slots, prompt_tokens(5), -1, kDefaultThreshold);
  EXPECT_EQ(choice.slot, 3u);
  EXPECT_TRUE(choice.due);
}

TEST(SlotChoice, M2TakesTheFirstOfEquallySimilarSlots) {
  const Tokens slot = slot_tokens(2, 4);
  const std::vector<SlotView> slots = {{slot, false, 1}, {slot, false, 2}};
  EXPECT_EQ(choose_slot(slots, prompt_tokens(4), -1, kDefaultThreshold).slot, 0u);
}

TEST(SlotChoice, M3TakesTheLastOfTheLeastRecentlyReleased) {
  const std::vector<SlotView> slots = {{{}, false, 50}, {{}, false, 20}, {{}, false, 20}, {{}, false, 90}};
  EXPECT_EQ(choose_slot(slots, prompt_tokens(4), -1, kDefaultThreshold).slot, 2u);
}

TEST(SlotChoice, M4CountsANeverUsedSlotAsOldest) {
  const std::vector<SlotView> slots = {{{}, false, -1}, {{}, false, 10}, {{}, false, -1}, {{}, false, 20}};
  EXPECT_EQ(choose_slot(slots, prompt_tokens(4), -1, kDefaultThreshold).slot, 2u);
}

TEST(SlotChoice, M5PassesOverABusySlot) {
  const Tokens close = slot_tokens(9, 9), far = slot_tokens(2, 2);
  const std::vector<SlotView> slots = {{close, true, 1}, {far, false, 2}};
  const SlotChoice choice = choose_slot(slots, prompt_tokens(10), -1, kDefaultThreshold);
  EXPECT_EQ(choice.slot, 1u);
  EXPECT_EQ(choice.by, By::similarity);
}

TEST(SlotChoice, WaitsWhileAllSlotsAreBusy) {
  const std::vector<SlotView> slots(2, SlotView{{}, true, 1});
  const SlotChoice choice = choose_slot(slots, prompt_tokens(10), -1, kDefaultThreshold);
  EXPECT_FALSE(choice.slot);
  EXPECT_FALSE(choice.due);
}

TEST(SlotChoice, WaitsForTheSlotThatWasAskedForAndLeavesItAlone) {
  const Tokens busy = slot_tokens(1, 9);
  const std::vector<SlotView> slots = {{busy, true, 1}, {{}, false, 2}};
  const SlotChoice choice = choose_slot(slots, prompt_tokens(10), 0, kDefaultThreshold);
  EXPECT_FALSE(choice.slot);
  EXPECT_FALSE(choice.due);
}

TEST(SlotChoice, WrapsNegativeIdsAsUnsigned) {
  const std::vector<SlotView> slots(3);
  // 2^64 - 2 modulo 3 is 2.
  EXPECT_EQ(choose_slot(slots, prompt_tokens(4), -2, kDefaultThreshold).slot, 2u);
}

TEST(SlotChoice, IsDueByLeastRecentForAnEmptyPrompt) {
  const Tokens slot = slot_tokens(4, 4);
  const SlotView view{slot, false, 1};
  const SlotChoice choice = choose_slot({&view, 1}, {}, -1, kDefaultThreshold);
  EXPECT_EQ(choice.by, By::least_recent);
  EXPECT_TRUE(choice.due);
}

TEST(SlotChoice, ANegativeThresholdAcceptsAnyCommonToken) {
  const Tokens slot = slot_tokens(1, 1);
  const SlotView view{slot, false, 1};
  EXPECT_EQ(choose_slot({&view, 1}, prompt_tokens(1000), -1, -1.0f).by, By::similarity);
}

}  // namespace
}  // namespace bankml
