#include "text/unicode.hpp"

#include <gtest/gtest.h>

#include <map>

namespace bankml {
namespace {

TEST(Unicode, KnowsTheCategoriesByFirstLetter) {
  EXPECT_EQ(char_class('a'), kLetter);
  EXPECT_EQ(char_class(U'世'), kLetter);
  EXPECT_EQ(char_class(U'ª'), kLetter);
  EXPECT_EQ(char_class('7'), kNumber);
  EXPECT_EQ(char_class(U'Ⅷ'), kNumber);
  EXPECT_EQ(char_class(U'½'), kNumber);
  EXPECT_EQ(char_class('!'), kPunctuation);
  EXPECT_EQ(char_class('_'), kPunctuation);
  EXPECT_EQ(char_class('$'), kSymbol);
  EXPECT_EQ(char_class('`'), kSymbol);
  EXPECT_EQ(char_class(U'\U0001F600'), kSymbol);
  EXPECT_EQ(char_class(0x301), kMark);
  EXPECT_EQ(char_class(0xE0100), kMark) << "the last block of the table";
}

TEST(Unicode, GivesNoClassToTheRest) {
  for (const char32_t code : {0x0u, 0x7Fu, 0x200Du, 0x378u, 0xD800u, 0xE000u, 0xE0200u, 0x10FFFFu, 0xFFFFFFFFu}) {
    EXPECT_EQ(char_class(code), 0) << std::hex << static_cast<unsigned>(code);
  }
}

TEST(Unicode, KnowsTheWhiteSpaceProperty) {
  int count = 0;
  for (char32_t code = 0; code <= 0x10FFFF; ++code) count += char_class(code) == kSpace;
  EXPECT_EQ(count, 25);
  EXPECT_EQ(char_class(0x85), kSpace);
  EXPECT_EQ(char_class(0x3000), kSpace);
  EXPECT_EQ(char_class(0x180E), 0) << "not since Unicode 6.3";
  EXPECT_EQ(char_class(0x1C), 0);
}

TEST(Unicode, HasTheCharactersThatVersion15_1Added) {
  EXPECT_EQ(char_class(0x2FFC), kSymbol);
  EXPECT_EQ(char_class(0x31EF), kSymbol);
  EXPECT_EQ(char_class(0x2EBF0), kLetter);
  EXPECT_EQ(char_class(0x2EE5D), kLetter);
  EXPECT_EQ(char_class(0x2EE5E), 0);
}

// Totals of DerivedGeneralCategory.txt 15.1.0.
TEST(Unicode, CountsAsTheCharacterDatabase) {
  std::map<CharClass, int> count;
  for (char32_t code = 0; code <= 0x10FFFF; ++code) ++count[char_class(code)];
  EXPECT_EQ(count[kLetter], 136726);
  EXPECT_EQ(count[kNumber], 1831);
  EXPECT_EQ(count[kPunctuation], 842);
  EXPECT_EQ(count[kMark], 2450);
  EXPECT_EQ(count[kSymbol], 7775);
}

}  // namespace
}  // namespace bankml
