#include "engine/checkpoints.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bankml {
namespace {

using ::testing::ElementsAre;

using List = Checkpoints<int>;

std::vector<std::int64_t> tokens(const List& list) {
  std::vector<std::int64_t> out;
  for (const auto& c : list.list()) out.push_back(c.tokens);
  return out;
}

// A checkpoint of n tokens, window layers holding all of them.
CheckpointMark mark(std::int64_t n, std::uint64_t task) {
  return {n, 0, n - 1, task, 10};
}

// A run of llama-server b11192 with at most 4 checkpoints and a minimum step of 30: prompts of 50, 70, 90, 200, 210 and
// 220 tokens, each the beginning of the next one.
TEST(Checkpoints, ThinsOutEarlierTasksBeforeTheOldestGoes) {
  const CheckpointRules rules{4, 30};
  List list;
  for (const std::int64_t n : {14, 46}) list.add(mark(n, 1), 0, rules);
  for (const std::int64_t n : {45, 66}) list.add(mark(n, 2), 0, rules);
  list.add(mark(70, 3), 0, rules);
  EXPECT_THAT(tokens(list), ElementsAre(14, 46, 70)) << "45 and 66 are close to 46";
  list.add(mark(86, 3), 0, rules);
  list.add(mark(164, 4), 0, rules);
  EXPECT_THAT(tokens(list), ElementsAre(14, 46, 86, 164)) << "70 is close to 46";
  list.add(mark(196, 4), 0, rules);
  EXPECT_THAT(tokens(list), ElementsAre(46, 86, 164, 196)) << "none is close: the oldest goes";
  list.add(mark(200, 5), 0, rules);
  list.add(mark(206, 5), 0, rules);
  EXPECT_THAT(tokens(list), ElementsAre(164, 196, 200, 206));
  list.add(mark(210, 6), 0, rules);
  EXPECT_THAT(tokens(list), ElementsAre(164, 196, 210));
}

TEST(Checkpoints, KeepsWhatTheSameTaskMade) {
  const CheckpointRules rules{3, 100};
  List list;
  for (const std::int64_t n : {10, 20}) list.add(mark(n, 1), 0, rules);
  list.add(mark(30, 1), 0, rules);
  EXPECT_THAT(tokens(list), ElementsAre(10, 20, 30));
}

TEST(Checkpoints, ReplacesOneOfTheSameTokens) {
  List list;
  list.add(mark(10, 1), 5, {});
  list.add(mark(10, 2), 6, {});
  ASSERT_EQ(list.size(), 1u);
  EXPECT_EQ(list.list()[0].state, 6);
}

TEST(Checkpoints, KeepsNoMoreThanOneIfThatIsTheLimit) {
  List list;
  list.add(mark(10, 1), 0, {1, 0});
  list.add(mark(20, 1), 0, {1, 0});
  EXPECT_THAT(tokens(list), ElementsAre(20));
}

TEST(Checkpoints, CountsTheirBytes) {
  List list;
  list.add(mark(10, 1), 0, {});
  list.add(mark(20, 1), 0, {});
  EXPECT_EQ(list.bytes(), 20u);
}

TEST(Checkpoints, FindsTheNewestThatHoldsWhatIsNeeded) {
  List list;
  list.add(mark(46, 1), 1, {});
  list.add(mark(45, 2), 2, {});
  list.add({264, 8, 263, 3, 10}, 3, {});
  EXPECT_EQ(list.find(45, 0)->state, 2) << "reaches to position 44";
  EXPECT_EQ(list.find(45, 20)->state, 2);
  EXPECT_EQ(list.find(44, 0)->state, 2) << "may reach one further than the tokens that are used";
  EXPECT_EQ(list.find(43, 0), nullptr);
  EXPECT_EQ(list.find(300, 9)->state, 3);
  EXPECT_EQ(list.find(300, 8)->state, 2) << "a later one begins at position 8, which is not before it";
}

TEST(Checkpoints, DropsThoseThatReachBeyondWhatIsUsed) {
  List list;
  for (const std::int64_t n : {10, 20, 30}) list.add(mark(n, 1), 0, {});
  list.drop_beyond(19);
  EXPECT_THAT(tokens(list), ElementsAre(10, 20));
}

TEST(Checkpoints, DropsTheOldestOfThoseThatAreWanted) {
  List list;
  for (const std::int64_t n : {10, 20, 30}) list.add(mark(n, 1), static_cast<int>(n) % 20, {});
  const auto zero = [](int state) { return state == 0; };
  EXPECT_TRUE(list.drop_oldest(zero));
  EXPECT_THAT(tokens(list), ElementsAre(10, 30));
  EXPECT_FALSE(list.drop_oldest(zero));
}

// docs/prompt-cache.md, 8.7: B1, B5 and B10.
TEST(CheckpointDue, IsDueBeforeTheLastPassesOfAPrompt) {
  EXPECT_FALSE(checkpoint_due(5000, 2048, 4096, 512, {}, -1, 8192));
  EXPECT_FALSE(checkpoint_due(5000, 4096, 4484, 512, {}, -1, 8192));
  EXPECT_TRUE(checkpoint_due(5000, 4484, 4996, 512, {}, -1, 8192));
  EXPECT_TRUE(checkpoint_due(5000, 4996, 5000, 512, {}, 4484, 8192)) << "near the end they may be close";
  EXPECT_TRUE(checkpoint_due(600, 84, 596, 512, {}, -1, 8192));
  EXPECT_TRUE(checkpoint_due(100, 68, 96, 32, {}, -1, 8192));
  EXPECT_FALSE(checkpoint_due(100, 64, 68, 32, {}, -1, 8192));
}

TEST(CheckpointDue, IsDueBeforeAMessageOfTheUserUnlessOneIsClose) {
  const std::vector<std::int32_t> starts = {20, 71, 900};
  EXPECT_TRUE(checkpoint_due(5000, 71, 500, 64, starts, -1, 8192));
  EXPECT_FALSE(checkpoint_due(5000, 71, 500, 64, starts, 20, 8192));
  EXPECT_TRUE(checkpoint_due(5000, 71, 500, 64, starts, 20, 50));
  EXPECT_TRUE(checkpoint_due(5000, 900, 1500, 64, starts, 899, 8192)) << "the last one is always worth it";
  EXPECT_FALSE(checkpoint_due(5000, 72, 500, 64, starts, -1, 8192));
}

}  // namespace
}  // namespace bankml
