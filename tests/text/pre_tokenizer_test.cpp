#include "text/pre_tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace bankml {
namespace {

using Pieces = std::vector<std::string_view>;

const PreTokenizer& rules(std::string_view name) {
  const PreTokenizer* found = find_pre_tokenizer(name);
  if (found == nullptr) throw std::logic_error("no such pre-tokenizer");
  return *found;
}

Pieces split(std::string_view name, std::string_view text) {
  return rules(name).split(text);
}

std::vector<std::string> all_names() {
  std::vector<std::string> names(1);
  for (const char c : pre_tokenizer_names()) {
    if (c == ',') {
      names.emplace_back();
    } else if (c != ' ') {
      names.back() += c;
    }
  }
  return names;
}

TEST(PreTokenizer, Gpt2CutsWordsNumbersAndSigns) {
  EXPECT_EQ(split("gpt-2", "Hello world's  test 123!?"), (Pieces{"Hello", " world", "'s", " ", " test", " 123", "!?"}));
  EXPECT_EQ(split("gpt-2", ""), Pieces{});
}

TEST(PreTokenizer, Gpt2KnowsContractionsInSmallLettersOnly) {
  EXPECT_EQ(split("gpt-2", "we'll"), (Pieces{"we", "'ll"}));
  EXPECT_EQ(split("gpt-2", "'S"), (Pieces{"'", "S"}));
  EXPECT_EQ(split("gpt-2", "'l"), (Pieces{"'", "l"}));
}

TEST(PreTokenizer, Gpt2LeavesTheLastSpaceToWhatFollows) {
  EXPECT_EQ(split("gpt-2", "a   b"), (Pieces{"a", "  ", " b"}));
  EXPECT_EQ(split("gpt-2", "a\n\nb"), (Pieces{"a", "\n", "\n", "b"}));
  EXPECT_EQ(split("gpt-2", "a \n "), (Pieces{"a", " \n "})) << "nothing follows";
  EXPECT_EQ(split("gpt-2", "x\u0085y"), (Pieces{"x", "\u0085", "y"}));
  EXPECT_EQ(split("gpt-2", "x\u00a0y"), (Pieces{"x", "\u00a0", "y"})) << "only U+0020 belongs to a word";
}

TEST(PreTokenizer, Gpt2CountsWhatIsNeitherLetterNorNumberNorSpaceAsSigns) {
  EXPECT_EQ(split("gpt-2", "e\u0301 \u180e\U0001F600\ue000"), (Pieces{"e", "\u0301", " \u180e\U0001F600\ue000"}));
}

TEST(PreTokenizer, Llama3CutsNumbersInThrees) {
  EXPECT_EQ(split("llama-bpe", "1234567"), (Pieces{"123", "456", "7"}));
  EXPECT_EQ(split("llama-bpe", " 12"), (Pieces{" ", "12"}));
}

TEST(PreTokenizer, Llama3KnowsContractionsInEitherCaseButNoLongS) {
  EXPECT_EQ(split("llama-bpe", "I'LL"), (Pieces{"I", "'LL"}));
  EXPECT_EQ(split("llama-bpe", "'S 'LL"), (Pieces{"'S", " '", "LL"}));
  EXPECT_EQ(split("llama-bpe", "'\u017f"), (Pieces{"'\u017f"}));
  EXPECT_EQ(split("llama-bpe", "\u017f's"), (Pieces{"\u017f", "'s"}));
}

TEST(PreTokenizer, Llama3LetsOneOtherCharacterLeadAWord) {
  EXPECT_EQ(split("llama-bpe", "(foo)\tbar"), (Pieces{"(foo", ")", "\tbar"}));
  EXPECT_EQ(split("llama-bpe", "e\u0301x"), (Pieces{"e", "\u0301x"}));
  EXPECT_EQ(split("llama-bpe", "\nfoo"), (Pieces{"\n", "foo"}));
}

TEST(PreTokenizer, Llama3KeepsNewlinesTogether) {
  EXPECT_EQ(split("llama-bpe", "a\r\n\r\n  b"), (Pieces{"a", "\r\n\r\n", " ", " b"}));
  EXPECT_EQ(split("llama-bpe", "!!\n\nx"), (Pieces{"!!\n\n", "x"}));
  EXPECT_EQ(split("llama-bpe", " \n \n "), (Pieces{" \n \n", " "}));
}

TEST(PreTokenizer, Qwen2CutsEveryNumberAlone) {
  EXPECT_EQ(split("qwen2", "a12"), (Pieces{"a", "1", "2"}));
}

TEST(PreTokenizer, Qwen35CountsMarksAsPartsOfWords) {
  EXPECT_EQ(split("qwen35", "e\u0301x \u0301"), (Pieces{"e\u0301x", " \u0301"}));
  EXPECT_EQ(split("qwen35", "\u0301"), (Pieces{"\u0301"}));
}

TEST(PreTokenizer, TekkenCutsWhereACapitalFollowsASmallLetter) {
  EXPECT_EQ(split("tekken", "camelCase"), (Pieces{"camel", "Case"}));
  EXPECT_EQ(split("tekken", "ABCd"), (Pieces{"ABCd"}));
  EXPECT_EQ(split("tekken", "\u00c9ABC"), (Pieces{"\u00c9", "ABC"}));
  EXPECT_EQ(split("tekken", "ABC\u00c9D\u00e9aB"), (Pieces{"ABC\u00c9D\u00e9a", "B"}));
  EXPECT_EQ(split("tekken", " ABC 12"), (Pieces{" ABC", " ", "1", "2"}));
}

TEST(PreTokenizer, TekkenTakesSlashesAndNewlinesAfterSigns) {
  EXPECT_EQ(split("tekken", " !/\n//x"), (Pieces{" !/\n//", "x"}));
}

TEST(PreTokenizer, Gpt4oKeepsContractionsWithTheirWords) {
  EXPECT_EQ(split("gpt-4o", "don'tgo 1234"), (Pieces{"don't", "go", " ", "123", "4"}));
  EXPECT_EQ(split("gpt-4o", "DON'T"), (Pieces{"DON'T"}));
  EXPECT_EQ(split("tekken", "don'tgo"), (Pieces{"don", "'tgo"}));
}

TEST(PreTokenizer, SmollmCutsNumbersBeforeWords) {
  EXPECT_EQ(split("smollm", "a12b 3"), (Pieces{"a", "1", "2", "b", " ", "3"}));
}

TEST(PreTokenizer, DefaultCutsSignsAndThenDigitsInThrees) {
  EXPECT_EQ(split("default", "a$b 1234"), (Pieces{"a", "$", "b", " ", "123", "4"}));
  EXPECT_EQ(split("default", "it's"), (Pieces{"it", "'", "s"}));
  EXPECT_EQ(split("default", "`x"), (Pieces{"`", "x"}));
}

TEST(PreTokenizer, FalconCountsBackticksAsSigns) {
  EXPECT_EQ(split("falcon", "`!x 12345"), (Pieces{"`!", "x", " ", "123", "45"}));
  EXPECT_EQ(split("default", "`!"), (Pieces{"`", "!"}));
}

TEST(PreTokenizer, DeepseekLlmCutsByRangesOfCharacters) {
  EXPECT_EQ(split("deepseek-llm", "Hi, 世界 12\n"), (Pieces{"Hi", ",", " ", "世界", " ", "12", "\n"}));
  EXPECT_EQ(split("deepseek-llm", "ab   "), (Pieces{"ab", "   "}));
  EXPECT_EQ(split("deepseek-llm", "\uff01\u3000\uff01"), (Pieces{"\uff01", "\u3000\uff01"}));
  EXPECT_EQ(split("deepseek-llm", "世\u3000界"), (Pieces{"世", "\u3000", "界"})) << "white space is in no range";
}

TEST(PreTokenizer, DeepseekCoderCutsWordsWithASpaceBefore) {
  EXPECT_EQ(split("deepseek-coder", "x += 12 (y)"), (Pieces{"x", " += ", "1", "2", " (", "y", ")"}));
}

TEST(PreTokenizer, Deepseek3JoinsASignAndAsciiLetters) {
  EXPECT_EQ(split("deepseek-v3", "#include <a>12345"), (Pieces{"#include", " <", "a", ">", "123", "45"}));
  EXPECT_EQ(split("deepseek-v3", "a世か!\n"), (Pieces{"a", "世か", "!\n"}));
}

TEST(PreTokenizer, WhatNoExpressionMatchesIsAPieceToo) {
  EXPECT_EQ(split("deepseek-v3", "\x01\x01\x02y\x03"), (Pieces{"\x01\x01", "\x02y", "\x03"}));
}

TEST(PreTokenizer, SeedCoderLeavesNewlinesOutOfSigns) {
  EXPECT_EQ(split("seed-coder", "!!\n\nx"), (Pieces{"!!", "\n\n", "x"}));
}

TEST(PreTokenizer, FlagsAreThoseOfTheTable) {
  EXPECT_TRUE(rules("llama-bpe").ignore_merges);
  EXPECT_TRUE(rules("llama-bpe").adds_bos);
  EXPECT_TRUE(rules("llama-bpe").clean_spaces);
  EXPECT_FALSE(rules("dbrx").ignore_merges);
  EXPECT_TRUE(rules("tekken").adds_bos);
  EXPECT_FALSE(rules("tekken").clean_spaces);
  EXPECT_FALSE(rules("smollm").clean_spaces);
  EXPECT_TRUE(rules("starcoder").clean_spaces);
}

TEST(PreTokenizer, IsFoundByItsWholeNameOnly) {
  EXPECT_EQ(find_pre_tokenizer("gpt"), nullptr);
  EXPECT_EQ(find_pre_tokenizer(""), nullptr);
  EXPECT_EQ(find_pre_tokenizer("gpt-2 phi-2"), nullptr);
  EXPECT_EQ(find_pre_tokenizer("bloom"), nullptr);
}

TEST(PreTokenizer, PiecesPutTogetherAreTheText) {
  const std::vector<std::string> parts = {"a",   "B", "'s", " ",    "  ",     "\n",     "\r\n",   "1",
                                          "234", ".", "$",  "`",    "\u00e9", "\u0301", "\u3000", "世",
                                          "か",  "!", "/",  "\x01", "\ue000", "\u0378", "\u00a0"};
  std::mt19937 random(7);
  for (const std::string& name : all_names()) {
    for (int round = 0; round < 200; ++round) {
      std::string text, joined;
      for (auto n = random() % 20; n > 0; --n) text += parts[random() % parts.size()];
      for (const std::string_view piece : split(name, text)) {
        EXPECT_FALSE(piece.empty());
        joined += piece;
      }
      ASSERT_EQ(joined, text) << name;
    }
  }
}

// A quadratic step would take minutes.
TEST(PreTokenizer, LongRunsTakeLinearTime) {
  constexpr std::size_t kLength = 100'000;
  for (const char* name : {"default", "gpt-2", "smollm", "llama-bpe", "qwen2", "qwen35", "tekken", "gpt-4o",
                           "deepseek-llm", "deepseek-coder", "deepseek-v3", "falcon", "seed-coder"}) {
    for (const char* unit : {" ", "a", "A", "aA", "1", "!", "\n", "\n ", "'", "\u00e9", "\u3000"}) {
      std::string text;
      while (text.size() < kLength) text += unit;
      EXPECT_FALSE(split(name, text + "x ").empty()) << name;
    }
  }
}

}  // namespace
}  // namespace bankml
