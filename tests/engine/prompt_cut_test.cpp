#include "engine/prompt_cut.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace bankml {
namespace {

using testing::ElementsAre;

// Lengths of the steps that evaluate a prompt alone.
std::vector<std::int64_t> steps(std::int64_t total, std::int64_t cached, bool cut = true, int batch = 2048,
                                int ubatch = 512) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t done = cached; done < total;) {
    const std::int64_t end = cut_prompt(total, done, batch, batch, ubatch, {.wanted = cut});
    lengths.push_back(end - done);
    done = end;
  }
  return lengths;
}

// The examples B1 to B10 of docs/prompt-cache.md, 8.7.
TEST(PromptCut, LeavesAForwardPassAndFourTokensToTheEndOfALongPrompt) {
  EXPECT_THAT(steps(5000, 0), ElementsAre(2048, 2048, 388, 512, 4));
  EXPECT_THAT(steps(5000, 1000), ElementsAre(2048, 1436, 512, 4));
  EXPECT_THAT(steps(3000, 0), ElementsAre(2048, 436, 512, 4));
  EXPECT_THAT(steps(600, 0), ElementsAre(84, 512, 4));
  EXPECT_THAT(steps(517, 0), ElementsAre(1, 512, 4));
}

TEST(PromptCut, LeavesFourTokensToTheEndOfAShortPrompt) {
  EXPECT_THAT(steps(516, 0), ElementsAre(512, 4));
  EXPECT_THAT(steps(20, 0), ElementsAre(16, 4));
  EXPECT_THAT(steps(5000, 4990), ElementsAre(6, 4));
}

TEST(PromptCut, TakesFourTokensInOneStep) {
  EXPECT_THAT(steps(4, 0), ElementsAre(4));
  EXPECT_THAT(steps(5000, 4996), ElementsAre(4));
  EXPECT_THAT(steps(3, 0), ElementsAre(3));
}

TEST(PromptCut, LeavesNoMoreThanABatch) {
  EXPECT_THAT(steps(100, 0, true, 32, 32), ElementsAre(32, 32, 4, 28, 4));
  EXPECT_THAT(steps(10, 0, true, 2, 2), ElementsAre(2, 2, 2, 2, 2));
}

TEST(PromptCut, FillsTheBatchOfAModelWithoutAWindow) {
  EXPECT_THAT(steps(5000, 0, false), ElementsAre(2048, 2048, 904));
  EXPECT_THAT(steps(600, 0, false), ElementsAre(600));
  EXPECT_THAT(steps(100, 0, false, 32, 32), ElementsAre(32, 32, 32, 4));
}

// A chat of llama-server b11192: 53 tokens, the only message of the user starts at token 20.
TEST(PromptCut, EndsAStepBeforeTheLastMessageOfTheUser) {
  const std::vector<std::int32_t> starts = {20};
  EXPECT_EQ(cut_prompt(53, 0, 2048, 2048, 512, {true, starts, -1, 8192}), 20);
  EXPECT_EQ(cut_prompt(53, 20, 2048, 2048, 512, {true, starts, -1, 8192}), 49);
}

TEST(PromptCut, PassesOverAMessageOfTheUserThatIsCloseToTheNewestCheckpoint) {
  const std::vector<std::int32_t> starts = {20, 71, 200};
  EXPECT_EQ(cut_prompt(900, 48, 2048, 2048, 64, {true, starts, 49, 100}), 200);
  EXPECT_EQ(cut_prompt(900, 48, 2048, 2048, 64, {true, starts, 49, 0}), 71) << "more than the minimum step away";
  EXPECT_EQ(cut_prompt(900, 48, 2048, 2048, 64, {true, starts, -1, 8192}), 71) << "there is no checkpoint";
}

std::vector<BatchRow> rows_of(const std::vector<std::pair<std::int32_t, int>>& parts) {
  std::vector<BatchRow> rows;
  for (const auto& [sequence, count] : parts) {
    for (int i = 0; i < count; ++i) rows.push_back({0, i, sequence, false});
  }
  return rows;
}

// (sequence, rows) of the passes that a step is divided into.
std::vector<std::vector<std::pair<std::int32_t, int>>> passes(std::vector<BatchRow> rows, int ubatch, bool one_stream) {
  std::vector<std::vector<std::pair<std::int32_t, int>>> all;
  std::vector<BatchRow> scratch;
  for (std::size_t at = 0; at < rows.size();) {
    const std::size_t n = next_pass(std::span(rows).subspan(at), ubatch, one_stream, scratch);
    auto& pass = all.emplace_back();
    for (std::size_t i = at; i < at + n; ++i) {
      if (pass.empty() || pass.back().first != rows[i].sequence) pass.emplace_back(rows[i].sequence, 0);
      ++pass.back().second;
    }
    at += n;
  }
  return all;
}

TEST(NextPass, TakesTheFirstRowsOfOneStream) {
  EXPECT_THAT(passes(rows_of({{0, 3}, {1, 4}}), 5, true),
              ElementsAre(ElementsAre(std::pair(0, 3), std::pair(1, 2)), ElementsAre(std::pair(1, 2))));
}

// docs/prompt-cache.md, 4: equal shares until the shortest is used up, or the pass is full.
TEST(NextPass, TakesEqualSharesOfSeveralStreams) {
  EXPECT_THAT(passes(rows_of({{0, 3}, {1, 4}}), 8, false),
              ElementsAre(ElementsAre(std::pair(0, 3), std::pair(1, 3)), ElementsAre(std::pair(1, 1))));
  EXPECT_THAT(passes(rows_of({{0, 5}, {1, 4}}), 4, false),
              ElementsAre(ElementsAre(std::pair(0, 2), std::pair(1, 2)), ElementsAre(std::pair(0, 2), std::pair(1, 2)),
                          ElementsAre(std::pair(0, 1))));
}

TEST(NextPass, JoinsOnlySuccessiveStreams) {
  EXPECT_THAT(passes(rows_of({{0, 1}, {2, 1}, {3, 1}}), 8, false),
              ElementsAre(ElementsAre(std::pair(0, 1)), ElementsAre(std::pair(2, 1), std::pair(3, 1))));
}

TEST(NextPass, KeepsTheOrderOfASequence) {
  std::vector<BatchRow> rows = rows_of({{0, 3}, {1, 2}}), scratch;
  ASSERT_EQ(next_pass(rows, 4, false, scratch), 4u);
  EXPECT_EQ(rows[0].position, 0);
  EXPECT_EQ(rows[1].position, 1);
  EXPECT_EQ(rows[4].position, 2);
}

}  // namespace
}  // namespace bankml
