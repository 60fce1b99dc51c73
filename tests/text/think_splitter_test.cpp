// Expectations are llama-server b11192's answers for the same template and generated text, measured with a grammar that
// left the model no choice.
#include "bankml/text/think_splitter.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

// Of a template that writes "<think>\n" + reasoning + "\n</think>\n\n", and of one that only takes "</think>" out of
// the history and opens the block in its generation prompt.
const ThinkTags kLines{"<think>\n", "\n</think>\n\n"}, kPlain{"<think>", "</think>"};
constexpr std::string_view kOpened = "<|Assistant|><think>\n";

struct Case {
  std::string_view text, reasoning, content;
};

void expect(const ThinkTags& tags, std::string_view generation_prompt, const std::vector<Case>& cases,
            Thinking thinking = Thinking::apart) {
  for (const Case& c : cases) {
    const ThinkSplitter::Parts parts = split_thinking(ThinkSplitter(tags, generation_prompt, thinking), c.text);
    EXPECT_EQ(parts.reasoning, c.reasoning) << c.text;
    EXPECT_EQ(parts.content, c.content) << c.text;
  }
}

TEST(ThinkSplitter, TakesTheBlockAtTheBeginningApart) {
  expect(kLines, "<|im_start|>assistant\n",
         {{"<think>abc</think>hello", "abc", "hello"},
          {"<think>\nabc\n</think>\n\nhello world", "abc\n", "hello world"},
          {"\n\n<think>\nabc\n</think>\n", "abc\n", ""},
          {"<think>a</think>b<think>c</think>d", "a", "b<think>c</think>d"},
          {"<think>ab</th x</think>y", "ab</th x", "y"}});
}

TEST(ThinkSplitter, TakesOnlyTheWhiteSpaceOffThatTheTemplateWrites) {
  expect(kLines, "<|im_start|>assistant\n",
         {{"<think>ab </think> \n\t he \n", "ab ", " \n\t he \n"},
          {"<think>\n\n  ab\n\n</think>he", "\n  ab\n\n", "he"},
          {"<think> ab</think>\t\nhe", " ab", "\t\nhe"},
          {"<think>ab</think>\n\n\nhe", "ab", "\nhe"},
          {"<think>ab</think>\n he", "ab", " he"}});
}

TEST(ThinkSplitter, LeavesTextWithoutABlockAtTheBeginning) {
  expect(kLines, "<|im_start|>assistant\n",
         {{"hello", "", "hello"},
          {"abc</think>hello", "", "abc</think>hello"},
          {"hi <think>abc</think> there", "", "hi <think>abc</think> there"},
          {"  he ", "", "he "}});
}

TEST(ThinkSplitter, ReasoningOfWhiteSpaceIsNone) {
  expect(kLines, "<|im_start|>assistant\n",
         {{"<think></think>hello", "", "hello"}, {"<think>\n\n</think>\n\nhello", "", "hello"}});
}

TEST(ThinkSplitter, ABlockThatWasCutOffIsReasoning) {
  expect(kLines, "<|im_start|>assistant\n",
         {{"<think>abc", "abc", ""}, {"<think>ab</thi", "ab", ""}, {"<think>ab\n</th", "ab\n", ""}});
}

TEST(ThinkSplitter, ATextThatWouldLeaveNothingIsContent) {
  expect(
      kLines, "<|im_start|>assistant\n",
      {{" ", "", " "}, {"<thi", "", "<thi"}, {"<think>", "", "<think>"}, {"<think> </think>", "", "<think> </think>"}});
}

TEST(ThinkSplitter, BeginsInTheBlockThatTheGenerationPromptOpened) {
  expect(kPlain, kOpened,
         {{"abc</think>hello", "\nabc", "hello"},
          {"ab\n</think>\n", "\nab\n", "\n"},
          {"hello", "\nhello", ""},
          {"</think>he", "", "he"},
          {" </think> he", "", " he"},
          {"<think>abc</think>hello", "\n<think>abc", "hello"},
          {"\n\n</think>", "", "\n\n</think>"},
          {" ", "", " "}});
}

TEST(ThinkSplitter, TheGenerationPromptMayHaveClosedTheBlock) {
  expect(kLines, "<|im_start|>assistant\n<think>\n\n</think>\n\n",
         {{"<think>\nab\n</think>\n\nhe", "", "<think>\nab\n</think>\n\nhe"}, {"hello", "", "hello"}});
  expect(kLines, "<|im_start|>assistant\n<think>\nrea\n</think>\n\n", {{"prehe", "rea\n", "prehe"}});
  expect(kLines, "<|im_start|>assistant\n<think>\nrea", {{"fix</think>\n\nhe", "reafix", "he"}});
  expect(kPlain, "<|im_start|>assistant\n<think>\n\n</think>\n", {{"he", "", "\nhe"}});
}

TEST(ThinkSplitter, WithoutTagsEverythingIsContent) {
  expect({}, "", {{"<think>abc</think>hello", "", "<think>abc</think>hello"}, {"  he ", "", "  he "}});
}

const ThinkTags kChannels{"<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"};

TEST(ThinkSplitter, ReadsMessagesWithChannels) {
  expect(kChannels, "<|start|>assistant",
         {{"<|channel|>analysis<|message|>th<|end|><|start|>assistant<|channel|>final<|message|>he", "th", "he"},
          {"<|channel|>final<|message|>he", "", "he"},
          {"<|channel|>analysis<|message|>th", "th", ""},
          {"<|channel|>analysis<|message|>th<|end|>", "th", ""},
          {"<|channel|>commentary<|message|>co<|end|><|start|>assistant<|channel|>final<|message|>he", "", "cohe"},
          {"<|channel|>final<|message|>he<|return|>", "", "he<|return|>"},
          {"<|channel|>analysis<|message|>\n th \n<|end|><|start|>assistant<|channel|>final<|message|> he ", "\n th \n",
           " he "},
          {"<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>final<|message|>he", "", "he"},
          {"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|>"
           "<|start|>assistant<|channel|>final<|message|>he",
           "ab", "he"}});
}

// The peer answers 500.
TEST(ThinkSplitter, TextThatIsNoChainOfMessagesIsMalformed) {
  for (const std::string_view text :
       {"he", " <|channel|>final<|message|>he", "analysis<|message|>th", "<|channel|>other<|message|>he",
        "<|channel|>final <|constrain|>json<|message|>{}", "<|channel|>commentary x<|message|>he",
        "<|start|>assistant<|channel|>final<|message|>he", "<|channel|>analysis<|message|>th<|end|>he",
        "<|channel|>analysis<|message|>th<|end|>\n<|start|>assistant<|channel|>final<|message|>he",
        "<|channel|>analysis<|message|>th<|end|><|start|>user<|message|>he",
        "<|channel|>commentary<|message|>co<|end|><|start|>assistantx"}) {
    for (const Thinking thinking : {Thinking::apart, Thinking::aloud}) {
      EXPECT_THROW(split_thinking(ThinkSplitter(kChannels, "<|start|>assistant", thinking), text), Error) << text;
    }
  }
}

TEST(ThinkSplitter, NothingIsReadBehindTheFinalMessage) {
  expect(kChannels, "<|start|>assistant",
         {{"<|channel|>final<|message|>he<|end|>junk", "", "he"},
          {"<|channel|>final<|message|>he<|end|><|start|>assistant<|channel|>analysis<|message|>th", "", "he"},
          {"<|channel|>final<|message|>he<|en", "", "he"}});
}

TEST(ThinkSplitter, MessagesToToolsAreNotRead) {
  expect(
      kChannels, "<|start|>assistant",
      {{"<|channel|>analysis<|message|>th<|end|><|start|>assistant<|channel|>commentary to=functions.f "
        "<|constrain|>json<|message|>{}",
        "th", ""},
       {"<|channel|>analysis to=browser<|message|>x", "", "<|channel|>analysis to=browser<|message|>x"},
       {" to=functions.f<|channel|>commentary<|message|>{}", "", " to=functions.f<|channel|>commentary<|message|>{}"}});
}

TEST(ThinkSplitter, MessagesThatWereCutOffAreReadAsFarAsTheyGo) {
  expect(kChannels, "<|start|>assistant",
         {{"<|channel|>fin", "", "<|channel|>fin"},
          {"<|channel|>final<|message|>", "", "<|channel|>final<|message|>"},
          {"<|channel|>commentary<|message|>co", "", "co"},
          {"<|channel|>analysis<|message|>th<|en", "th", ""},
          {"<|channel|>analysis<|message|>th<|end|><|start|>assist", "th", ""},
          {"<|channel|>analysis<|message|>th<|end|><|start|>assistant<|channel|>fi", "th", ""},
          {"<|channel|>analysis<|message|>th<|start|>assistant<|channel|>final<|message|>x",
           "th<|start|>assistant<|channel|>final<|message|>x", ""}});
}

TEST(ThinkSplitter, AContinuedMessageBeginsOnItsChannel) {
  constexpr std::string_view kContinued =
      "<|start|>assistant<|channel|>analysis<|message|>rea<|end|><|start|>assistant<|channel|>final<|message|>";
  expect(kChannels, kContinued, {{"he", "rea", "he"}});
  expect(kChannels, "<|start|>assistant<|channel|>analysis<|message|>rea", {{"son", "reason", ""}});
  expect(kChannels, kContinued, {{"he", "", "<|channel|>analysis<|message|>rea<|end|>he"}}, Thinking::aloud);
}

TEST(ThinkSplitter, ThinkingAloudStaysInTheContent) {
  expect(kLines, "<|im_start|>assistant\n",
         {{"<think>\nabc\n</think>\n\nhello", "", "<think>\nabc\n</think>\n\nhello"},
          {"  <think>abc</think>hi you", "", "<think>abc</think>hi you"},
          {"\n\n  \n", "", "\n\n  \n"}},
         Thinking::aloud);
  expect(kPlain, kOpened, {{"abc</think>hello", "", "<think>\nabc</think>hello"}}, Thinking::aloud);
  expect(kChannels, "<|start|>assistant",
         {{"<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>co<|end|>"
           "<|start|>assistant<|channel|>final<|message|>he",
           "", "<|channel|>analysis<|message|>a<|end|>cohe"}},
         Thinking::aloud);
}

TEST(ThinkSplitter, UnparsedIsAllThatTheModelWrote) {
  expect(kPlain, kOpened, {{"abc</think>hello", "", "abc</think>hello"}}, Thinking::unparsed);
  expect(kLines, "", {{"  <think>abc</think>hi", "", "<think>abc</think>hi"}}, Thinking::unparsed);
  expect(kChannels, "<|start|>assistant", {{"<|channel|>final<|message|>he", "", "<|channel|>final<|message|>he"}},
         Thinking::unparsed);
}

std::string log_of(ThinkSplitter splitter, const std::vector<std::string_view>& pieces) {
  std::string log;
  for (const std::string_view piece : pieces) {
    const ThinkSplitter::Parts parts = splitter.add(piece);
    log += "[" + parts.reasoning + "|" + parts.content + "]";
  }
  return log;
}

TEST(ThinkSplitter, GivesWhatIsCertainOfMessagesAtOnce) {
  const std::vector<std::string_view> pieces = {
      "<|channel",         "|>anal",     "ysis<|",           "message|>", "th ", "in<|", "end|><|s",
      "tart|>assistant<|", "channel|>f", "inal<|message|>H", "e"};
  EXPECT_EQ(log_of(ThinkSplitter(kChannels, "<|start|>assistant"), pieces), "[|][|][|][|][th |][in|][|][|][|][|H][|e]");
  EXPECT_EQ(log_of(ThinkSplitter(kChannels, "<|start|>assistant", Thinking::aloud), pieces),
            "[|][|<|channel|>anal][|ysis<|][|message|>][|th ][|in<|][|end|>][|][|][|H][|e]");
}

TEST(ThinkSplitter, GivesWhatIsCertainAtOnce) {
  EXPECT_EQ(log_of(ThinkSplitter(kLines, ""), {"<thi", "nk>", "\n", "\n", "  a", "b", "\n", "</th", " x", "</think",
                                               ">", "\n", "\n", "he", "</think>"}),
            "[|][|][|][|][\n  a|][b|][\n|][|][</th x|][|][|][|][|][|he][|</think>]");
}

TEST(ThinkSplitter, OnePieceCanHoldBoth) {
  ThinkSplitter splitter(kPlain, kOpened);
  const ThinkSplitter::Parts parts = splitter.add("ab</think>he");
  EXPECT_EQ(parts.reasoning, "\nab");
  EXPECT_EQ(parts.content, "he");
}

}  // namespace
}  // namespace bankml
