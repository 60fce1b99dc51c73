#include "engine/output_text.hpp"

#include <gtest/gtest.h>

namespace bankml {
namespace {

TEST(OutputText, SendsEachPieceWhenThereAreNoStopWords) {
  OutputText output({});
  EXPECT_EQ(output.push("Hello", false).text, "Hello");
  EXPECT_EQ(output.push(" world", false).text, " world");
  EXPECT_EQ(output.text(), "Hello world");
}

TEST(OutputText, KeepsBackATokenThatEndsInsideACharacter) {
  OutputText output({});
  EXPECT_FALSE(output.push("\xE2\x82", false).complete);
  const auto step = output.push("\xAC", false);
  EXPECT_TRUE(step.complete);
  EXPECT_EQ(step.text, "\xE2\x82\xAC");
}

TEST(OutputText, CutsTheTextBeforeAStopWord) {
  OutputText output({"STOP"});
  const auto step = output.push("a STOP b", false);
  ASSERT_NE(step.stop_word, nullptr);
  EXPECT_EQ(*step.stop_word, "STOP");
  EXPECT_EQ(step.text, "a ");
  EXPECT_EQ(output.text(), "a ");
}

TEST(OutputText, HoldsBackWhatMayBecomeAStopWord) {
  OutputText output({"STOP"});
  const auto held = output.push("a ST", false);
  EXPECT_TRUE(held.complete);
  EXPECT_EQ(held.text, "");
  const auto stopped = output.push("OP", false);
  ASSERT_NE(stopped.stop_word, nullptr);
  EXPECT_EQ(stopped.text, "a ");
}

TEST(OutputText, ReleasesHeldTextWithTheNextPieceWhenTheStopWordDoesNotCome) {
  OutputText output({"STOP"});
  output.push("a ST", false);
  EXPECT_EQ(output.push("ART", false).text, "a START");
}

TEST(OutputText, ReleasesHeldTextAtTheEndOfGeneration) {
  OutputText output({"STOP"});
  output.push("a ST", false);
  EXPECT_EQ(output.push("", true).text, "a ST");
}

TEST(OutputText, TakesTheEarliestOfSeveralStopWords) {
  OutputText output({"bb", "a"});
  const auto step = output.push("x a bb", false);
  ASSERT_NE(step.stop_word, nullptr);
  EXPECT_EQ(*step.stop_word, "a");
  EXPECT_EQ(step.text, "x ");
}

TEST(OutputText, FindsAStopWordThatBeganInTokensEndingInsideACharacter) {
  OutputText output({"\xE2\x82\xAC!"});
  output.push("\xE2", false);
  output.push("\x82", false);
  const auto step = output.push("\xAC!", false);
  ASSERT_NE(step.stop_word, nullptr);
  EXPECT_EQ(step.text, "");
}

TEST(OutputText, IgnoresEmptyStopWords) {
  OutputText output({""});
  const auto step = output.push("text", false);
  EXPECT_EQ(step.stop_word, nullptr);
  EXPECT_EQ(step.text, "text");
}

}  // namespace
}  // namespace bankml
