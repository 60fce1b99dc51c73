#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/text/tokenizer.hpp"
#include "text/vocabularies.hpp"

namespace bankml {
namespace {

using testing::ElementsAre;

std::vector<std::string> texts_of(const VocabularySource& source, const std::vector<TokenId>& ids) {
  std::vector<std::string> texts;
  for (const TokenId id : ids) texts.push_back(source.tokens[static_cast<std::size_t>(id)]);
  return texts;
}

std::vector<std::string> encode(const VocabularySource& source, std::string_view text) {
  return texts_of(source, Tokenizer(source).encode(text, false, false));
}

TEST(Bpe, MergesTheLowestRankFirst) {
  auto source = bpe_of_bytes();
  add_merges(source, {{"b", "c"}, {"a", "b"}});
  EXPECT_THAT(encode(source, "abc"), ElementsAre("a", "bc"));
  EXPECT_THAT(encode(source, "abab"), ElementsAre("ab", "ab"));
}

TEST(Bpe, MergesTheLeftmostOfEqualRanksFirst) {
  auto source = bpe_of_bytes();
  add_merges(source, {{"a", "a"}});
  EXPECT_THAT(encode(source, "aaaaa"), ElementsAre("aa", "aa", "a"));
}

TEST(Bpe, GivesAPieceTheSameTokensWhereverItComesUp) {
  auto source = bpe_of_bytes();
  add_merges(source, {{"a", "b"}, {"\u0120", "ab"}});
  add_token(source, "<x>", TokenType::control);
  const Tokenizer tokenizer(source);
  const std::string once = "ab ab\xff ab c<x>";  // the bad byte makes a fragment that is spelled anew
  const auto ids = tokenizer.encode(once, false, true);
  std::string text;
  std::vector<TokenId> expected;
  for (int i = 0; i < 300; ++i) {
    text += once;
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_EQ(tokenizer.encode(text, false, true), expected);
}

TEST(Bpe, MergesThroughTextsThatAreNoTokens) {
  auto source = bpe_of_bytes();
  source.merges = {"a b", "ab c"};
  add_token(source, "abc");
  EXPECT_THAT(encode(source, "abc"), ElementsAre("abc"));
  EXPECT_THAT(encode(source, "abd"), ElementsAre("a", "b", "d")) << "ab is spelled by its bytes";
}

TEST(Bpe, SplitsAMergeAtTheFirstSpaceAfterItsFirstByte) {
  auto source = bpe_of_bytes();
  source.merges = {"\u0120 a"};
  add_token(source, "\u0120a");
  EXPECT_THAT(encode(source, " a"), ElementsAre("\u0120a"));
}

TEST(Bpe, TheFirstOfTwoEqualMergesCounts) {
  auto source = bpe_of_bytes();
  source.merges = {"a b", "b c", "a b"};
  add_token(source, "ab");
  add_token(source, "bc");
  EXPECT_THAT(encode(source, "abc"), ElementsAre("ab", "c"));
}

TEST(Bpe, TakesAWholePieceThatIsATokenOnlyIfMergesAreIgnored) {
  auto source = bpe_of_bytes("llama-bpe");
  add_token(source, "xyz");
  EXPECT_THAT(encode(source, "xyz"), ElementsAre("xyz"));
  source.pre = "dbrx";
  EXPECT_THAT(encode(source, "xyz"), ElementsAre("x", "y", "z"));
}

TEST(Bpe, ReadsEachInvalidByteAsReplacementCharacter) {
  const Tokenizer tokenizer(bpe_of_bytes());
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xff\xe2\x82z", false, false), false), "a\uFFFD\uFFFD\uFFFDz");
}

TEST(Bpe, DropsBytesThatHaveNoToken) {
  auto source = bpe_of_bytes();
  source.tokens[0] = "[none]";  // was byte 0
  EXPECT_THAT(Tokenizer(source).encode(std::string_view("a\0b", 3), false, false), ElementsAre('a', 'b'));
}

TEST(Bpe, RefusesAMergeWithoutASpace) {
  auto source = bpe_of_bytes();
  for (const char* merge : {"", "ab", " ab", "ab "}) {
    source.merges = {"a b", merge};
    EXPECT_THROW(Tokenizer{source}, Error) << merge;
  }
}

// Scans for the pair of lowest rank, leftmost first, until there is none.
std::vector<std::string> merge_naively(std::vector<std::string> symbols, const std::vector<std::string>& merges) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    const std::size_t space = merges[rank].find(' ', 1);
    ranks.try_emplace({merges[rank].substr(0, space), merges[rank].substr(space + 1)}, rank);
  }
  for (;;) {
    std::size_t best = merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == merges.size()) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

TEST(Bpe, EqualsTheNaiveLoopOnRandomVocabularies) {
  std::mt19937 random(11);
  for (int round = 0; round < 60; ++round) {
    auto source = bpe_of_bytes();
    std::vector<std::string> symbols = {"a", "b", "c"};
    for (int i = 0; i < 40; ++i) {
      const std::string left = symbols[random() % symbols.size()], right = symbols[random() % symbols.size()];
      source.merges.push_back(left + " " + right);
      if (std::find(symbols.begin(), symbols.end(), left + right) != symbols.end()) continue;
      symbols.push_back(left + right);
      add_token(source, left + right);
    }
    const Tokenizer tokenizer(source);
    for (int text = 0; text < 20; ++text) {
      std::vector<std::string> chars;
      std::string joined;
      for (auto n = random() % 40; n > 0; --n) joined += chars.emplace_back(1, static_cast<char>('a' + random() % 3));
      ASSERT_EQ(texts_of(source, tokenizer.encode(joined, false, false)), merge_naively(chars, source.merges))
          << joined;
    }
  }
}

TEST(Bpe, VeryLongPiecesAreNoProblem) {
  auto source = bpe_of_bytes();
  add_merges(source, {{"a", "a"}, {"aa", "aa"}, {"\u0120", "\u0120"}});
  const Tokenizer tokenizer(source);
  EXPECT_EQ(tokenizer.encode(std::string(400'000, 'a'), false, false).size(), 100'000u);
  EXPECT_EQ(tokenizer.encode(std::string(100'000, ' '), false, false).size(), 50'000u);
}

}  // namespace
}  // namespace bankml
