#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/text/tokenizer.hpp"
#include "text/vocabularies.hpp"

namespace bankml {
namespace {

using testing::ElementsAre;

// Without BOS and space prefix.
std::vector<std::string> encode(VocabularySource source, std::string_view text) {
  source.add_space_prefix = source.add_space_prefix.value_or(false);
  const Tokenizer tokenizer(source);
  std::vector<std::string> texts;
  for (const TokenId id : tokenizer.encode(text, false, true))
    texts.push_back(source.tokens[static_cast<std::size_t>(id)]);
  return texts;
}

VocabularySource with_tokens(const std::vector<std::pair<std::string, float>>& tokens) {
  auto source = spm_of_bytes();
  for (const auto& [text, score] : tokens) add_token(source, text, TokenType::normal, score);
  return source;
}

TEST(Spm, MergesTheHighestScoreFirst) {
  EXPECT_THAT(encode(with_tokens({{"a", -9}, {"b", -9}, {"c", -9}, {"ab", -2}, {"bc", -1}}), "abc"),
              ElementsAre("a", "bc"));
}

TEST(Spm, MergesTheLeftmostOfEqualScoresFirst) {
  EXPECT_THAT(encode(with_tokens({{"a", -9}, {"aa", -1}}), "aaa"), ElementsAre("aa", "a"));
  EXPECT_THAT(encode(with_tokens({{"a", -9}, {"b", -9}, {"ab", -0.0f}, {"ba", 0.0f}}), "aba"), ElementsAre("ab", "a"));
}

TEST(Spm, MergesCharactersThatAreNoTokensThemselves) {
  EXPECT_THAT(encode(with_tokens({{"xy", -1}}), "xyx"), ElementsAre("xy", "<0x78>"));
}

TEST(Spm, SpellsUnknownCharactersByBytes) {
  EXPECT_THAT(encode(spm_of_bytes(), "\u00e9\n"), ElementsAre("<0xC3>", "<0xA9>", "<0x0A>"));
}

TEST(Spm, KeepsInvalidBytes) {
  EXPECT_THAT(encode(spm_of_bytes(), "\xff\xe2\x82"), ElementsAre("<0xFF>", "<0xE2>", "<0x82>"));
}

TEST(Spm, WritesSpacesAsU2581AndNothingElse) {
  const auto source = with_tokens({{"\u2581", -1}, {"\u2581\u2581", -1}, {"a", -1}, {"\t", -1}});
  EXPECT_THAT(encode(source, "  a \t"), ElementsAre("\u2581\u2581", "a", "\u2581", "\t"));
}

TEST(Spm, PutsASpaceBeforeEachRawFragmentIfAskedTo) {
  auto source = with_tokens({{"\u2581", -1}, {"a", -1}});
  add_token(source, "<x>", TokenType::control);
  source.add_space_prefix = true;
  EXPECT_THAT(encode(source, "a<x>a"), ElementsAre("\u2581", "a", "<x>", "\u2581", "a"));
  EXPECT_THAT(encode(source, "<x>"), ElementsAre("<x>"));
  EXPECT_THAT(encode(source, ""), ElementsAre());
}

TEST(Spm, FallsBackToOneByteTextsAndThenRefuses) {
  VocabularySource source;
  source.model = "llama";
  add_token(source, "<unk>", TokenType::unknown);
  add_token(source, "\xC3");
  add_token(source, "\xA9");
  EXPECT_THAT(encode(source, "\u00e9"), ElementsAre("\xC3", "\xA9"));
  try {
    encode(source, "z");
    FAIL() << "z can't be expressed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::invalid_request);
    EXPECT_THAT(error.what(), testing::HasSubstr("0x7A"));
  }
}

TEST(Spm, RefusesScoresThatAreNaNOrTooFew) {
  auto source = spm_of_bytes();
  source.scores[7] = std::nanf("");
  EXPECT_THROW(Tokenizer{source}, Error);
  source.scores.resize(7);
  source.scores[6] = 0;
  EXPECT_THROW(Tokenizer{source}, Error);
  source.scores.clear();
  EXPECT_NO_THROW(Tokenizer{source});
}

std::vector<std::string> merge_naively(std::vector<std::string> symbols, const VocabularySource& source) {
  for (;;) {
    std::size_t at = symbols.size();
    float best = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = std::find(source.tokens.begin(), source.tokens.end(), symbols[i] + symbols[i + 1]);
      if (found == source.tokens.end()) continue;
      const float score = source.scores[static_cast<std::size_t>(found - source.tokens.begin())];
      if (at < symbols.size() && score <= best) continue;
      at = i;
      best = score;
    }
    if (at == symbols.size()) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Spm, EqualsTheNaiveLoopOnRandomVocabularies) {
  const std::vector<std::string> chars = {"a", "b", "\u00e9", "\u2581", "\U0001F600"};
  std::mt19937 random(5);
  for (int round = 0; round < 60; ++round) {
    VocabularySource source;
    source.model = "llama";
    for (const std::string& c : chars) add_token(source, c);
    for (int i = 0; i < 40; ++i) {
      std::string text;
      for (auto n = 2 + random() % 4; n > 0; --n) text += chars[random() % chars.size()];
      if (std::find(source.tokens.begin(), source.tokens.end(), text) != source.tokens.end()) continue;
      add_token(source, text, TokenType::normal, -static_cast<float>(random() % 20));
    }
    for (int text = 0; text < 20; ++text) {
      std::vector<std::string> symbols;
      std::string joined;
      for (auto n = random() % 40; n > 0; --n) joined += symbols.emplace_back(chars[random() % chars.size()]);
      ASSERT_EQ(encode(source, joined), merge_naively(symbols, source)) << joined;
    }
  }
}

// Words recur, in one fragment and in the next: each time they give what they give alone.
TEST(Spm, GivesAWordTheSameTokensWhereverItComesUp) {
  VocabularySource source;
  source.model = "llama";
  for (const char* text : {"a", "b", "\u00e9", "\n"}) add_token(source, text);
  for (const char* text : {"ab", "ba", "aba", "b\u00e9", "abab"}) {
    add_token(source, text, TokenType::normal, -static_cast<float>(source.tokens.size() % 3));
  }
  add_token(source, "<x>", TokenType::control);
  const std::vector<std::string> chars = {"a", "b", "\u00e9"};
  std::mt19937 random(6);
  std::vector<std::vector<std::string>> words(200);
  for (auto& word : words) {
    for (auto n = 1 + random() % 8; n > 0; --n) word.push_back(chars[random() % chars.size()]);
  }
  std::string text;
  std::vector<std::string> expected;
  for (int i = 0; i < 5000; ++i) {
    const auto& word = words[random() % words.size()];
    for (const std::string& c : word) text += c;
    const auto tokens = merge_naively(word, source);
    expected.insert(expected.end(), tokens.begin(), tokens.end());
    text += expected.emplace_back(i % 100 == 99 ? "<x>" : "\n");
  }
  EXPECT_EQ(encode(source, text), expected);
}

TEST(Spm, VeryLongRunsAreNoProblem) {
  auto source = with_tokens({{"a", -9}, {"aa", -1}, {"aaaa", -2}, {"\u2581", -9}, {"\u2581\u2581", -1}});
  source.add_space_prefix = false;
  const Tokenizer tokenizer(source);
  EXPECT_EQ(tokenizer.encode(std::string(400'000, 'a'), false, false).size(), 100'000u);
  EXPECT_EQ(tokenizer.encode(std::string(100'000, ' '), false, false).size(), 50'000u);
}

}  // namespace
}  // namespace bankml
