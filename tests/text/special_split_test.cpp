#include "text/special_split.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace bankml {
namespace {

using Texts = std::vector<std::string>;

// Each fragment as its text, tokens in brackets.
Texts describe(const Vocabulary& vocabulary, const std::vector<Fragment>& fragments) {
  Texts out;
  for (const Fragment& f : fragments)
    out.push_back(f.token ? "[" + vocabulary.text(*f.token) + "]" : std::string(f.text));
  return out;
}

constexpr auto kControlType = static_cast<std::int32_t>(TokenType::control);
constexpr auto kUserType = static_cast<std::int32_t>(TokenType::user_defined);

Texts split(const Vocabulary& vocabulary, std::string_view text, bool parse_special = true) {
  return describe(vocabulary, SpecialSplitter(vocabulary).split(text, parse_special));
}

TEST(SpecialSplit, CutsTokensOutOfText) {
  const Vocabulary vocabulary({"a", "<x>"}, {1, kControlType});
  EXPECT_EQ(split(vocabulary, "a<x>b<x><x>"), (Texts{"a", "[<x>]", "b", "[<x>]", "[<x>]"}));
  EXPECT_EQ(split(vocabulary, ""), Texts{});
  EXPECT_EQ(split(vocabulary, "<x"), Texts{"<x"});
}

TEST(SpecialSplit, ControlTokensStayTextUnlessParsed) {
  const Vocabulary vocabulary({"<x>", "<u>"}, {kControlType, kUserType});
  EXPECT_EQ(split(vocabulary, "<x><u>", false), (Texts{"<x>", "[<u>]"}));
}

TEST(SpecialSplit, AUserDefinedTokenThatBeginsAControlTokenIsCutWhenThatIsNotParsed) {
  const Vocabulary vocabulary({"<x>y", "<x>"}, {kControlType, kUserType});
  EXPECT_EQ(split(vocabulary, "<x>y", false), (Texts{"[<x>]", "y"}));
  EXPECT_EQ(split(vocabulary, "<x>y", true), (Texts{"[<x>y]"}));
}

TEST(SpecialSplit, ALongerTokenWinsOverAShorterOneToItsLeft) {
  const Vocabulary vocabulary({"ab", "bcd"}, {kUserType, kUserType});
  EXPECT_EQ(split(vocabulary, "abcd"), (Texts{"a", "[bcd]"}));
}

TEST(SpecialSplit, AShorterTokenIsStillCutWhereALongerOneIsBlocked) {
  const Vocabulary vocabulary({"abc", "cdefg", "a", "ab"}, {kUserType, kUserType, kUserType, kUserType});
  EXPECT_EQ(split(vocabulary, "abcdefg"), (Texts{"[ab]", "[cdefg]"}));
}

TEST(SpecialSplit, OfEquallyLongTokensTheLowerIdWins) {
  const Vocabulary vocabulary({"bc", "ab"}, {kUserType, kUserType});
  EXPECT_EQ(split(vocabulary, "abc"), (Texts{"a", "[bc]"}));
}

TEST(SpecialSplit, RunsAreCutFromTheLeftInTheLongestPieces) {
  const Vocabulary vocabulary({"\n", "\n\n", "\n\n\n"}, {kUserType, kUserType, kUserType});
  EXPECT_EQ(split(vocabulary, "a\n\n\n\n\n"), (Texts{"a", "[\n\n\n]", "[\n\n]"}));
}

TEST(SpecialSplit, StripsWhiteSpaceAfterATokenThatTakesIt) {
  Vocabulary vocabulary({"<x>", "<y>"}, {kControlType, kControlType});
  vocabulary.add(0, kStripRight);
  EXPECT_EQ(split(vocabulary, "<x> \n\ta <x>  <y> b"), (Texts{"[<x>]", "a ", "[<x>]", "[<y>]", " b"}));
}

// The rule as it is written: candidate by candidate, fragment by fragment.
std::vector<Fragment> split_naively(const Vocabulary& vocabulary, std::string_view text, bool parse_special) {
  std::vector<TokenId> order(static_cast<std::size_t>(vocabulary.size()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return vocabulary.text(a).size() > vocabulary.text(b).size(); });
  std::vector<Fragment> fragments;
  if (!text.empty()) fragments.push_back({text, std::nullopt});
  for (const TokenId id : order) {
    if (!vocabulary.has(id, kUserDefined | kControl) || (!parse_special && vocabulary.has(id, kControl))) continue;
    std::vector<Fragment> next;
    for (const Fragment& fragment : fragments) {
      std::string_view rest = fragment.text;
      for (std::size_t at; !fragment.token && (at = rest.find(vocabulary.text(id))) != rest.npos;) {
        if (at > 0) next.push_back({rest.substr(0, at), std::nullopt});
        next.push_back({{}, id});
        rest.remove_prefix(at + vocabulary.text(id).size());
        while (vocabulary.has(id, kStripRight) && rest.starts_with(' ')) rest.remove_prefix(1);
      }
      if (fragment.token || !rest.empty()) next.push_back({rest, fragment.token});
    }
    fragments = std::move(next);
  }
  return fragments;
}

TEST(SpecialSplit, EqualsTheNaiveLoopOnRandomVocabularies) {
  std::mt19937 random(3);
  const auto random_text = [&](std::size_t longest) {
    std::string text;
    for (auto n = 1 + random() % longest; n > 0; --n) text += "ab "[random() % 3];
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    Texts texts;
    std::vector<std::int32_t> types;
    for (int i = 0; i < 8; ++i) {
      const std::string text = random_text(5);
      if (std::find(texts.begin(), texts.end(), text) != texts.end()) continue;
      texts.push_back(text);
      types.push_back(random() % 3 == 0 ? kControlType : kUserType);
    }
    Vocabulary vocabulary(texts, types);
    for (TokenId id = 0; id < vocabulary.size(); ++id) {
      if (random() % 4 == 0) vocabulary.add(id, kStripRight);
    }
    const SpecialSplitter splitter(vocabulary);
    for (int i = 0; i < 20; ++i) {
      const std::string text = random_text(30);
      const bool parse_special = random() % 2 == 0;
      ASSERT_EQ(describe(vocabulary, splitter.split(text, parse_special)),
                describe(vocabulary, split_naively(vocabulary, text, parse_special)))
          << text;
    }
  }
}

}  // namespace
}  // namespace bankml
