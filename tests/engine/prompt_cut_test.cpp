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
    const std::int64_t end = cut_prompt(total, done, batch, batch, ubatch, cut).end;
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

TEST(PromptCut, EndsTheStepOnlyAtABorder) {
  EXPECT_TRUE(cut_prompt(20, 0, 2048, 2048, 512, true).ends_step);
  EXPECT_FALSE(cut_prompt(20, 16, 2048, 2048, 512, true).ends_step);
  EXPECT_TRUE(cut_prompt(20, 0, 16, 2048, 512, true).ends_step);
  EXPECT_FALSE(cut_prompt(20, 0, 15, 2048, 512, true).ends_step);
  EXPECT_FALSE(cut_prompt(20, 0, 2048, 2048, 512, false).ends_step);
}

}  // namespace
}  // namespace bankml
