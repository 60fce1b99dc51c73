#include "bankml/base/utf8.hpp"

#include <gtest/gtest.h>

#include <string>

namespace bankml {
namespace {

TEST(Utf8, DecodesOneToFourBytes) {
  const std::string text = "a\u00e9\u20ac\U0001F600";
  EXPECT_EQ(decode_utf8(text, 0).code, U'a');
  EXPECT_EQ(decode_utf8(text, 1).code, U'\u00e9');
  EXPECT_EQ(decode_utf8(text, 3).code, U'\u20ac');
  EXPECT_EQ(decode_utf8(text, 6).code, U'\U0001F600');
  EXPECT_EQ(decode_utf8(text, 6).length, 4);
}

TEST(Utf8, EveryCodePointSurvivesTheRoundTrip) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code == 0xD800) code = 0xE000;
    std::string text;
    append_utf8(text, code);
    const Utf8Char c = decode_utf8(text, 0);
    ASSERT_TRUE(c.valid) << std::hex << static_cast<unsigned>(code);
    ASSERT_EQ(c.code, code);
    ASSERT_EQ(c.length, text.size());
  }
}

// What the peer's server answers for byte tokens that don't make up characters.
TEST(Utf8, ReplacesEachMaximalSubpart) {
  EXPECT_EQ(replace_invalid_utf8("\xff\xff"), "\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xe2\x82"
                                 "A"),
            "\uFFFDA");
  EXPECT_EQ(replace_invalid_utf8("\xf0\x9f\x98"
                                 "A"),
            "\uFFFDA");
  EXPECT_EQ(replace_invalid_utf8("\xe2\x82"), "\uFFFD");
  EXPECT_EQ(replace_invalid_utf8("\xf0\x9f\xe2\x82\xac"), "\uFFFD\u20ac");
  EXPECT_EQ(replace_invalid_utf8("\xed\xa0\x80x"), "\uFFFD\uFFFD\uFFFDx") << "surrogate";
  EXPECT_EQ(replace_invalid_utf8("\xc0\x80"), "\uFFFD\uFFFD") << "overlong";
  EXPECT_EQ(replace_invalid_utf8("\xe0\x80\x80"), "\uFFFD\uFFFD\uFFFD") << "overlong";
  EXPECT_EQ(replace_invalid_utf8("\xf4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD") << "above U+10FFFF";
}

TEST(Utf8, LeavesValidTextAsItIs) {
  const std::string text = "na\u00efve \U0001F600\n";
  EXPECT_TRUE(is_valid_utf8(text));
  EXPECT_EQ(replace_invalid_utf8(text), text);
  EXPECT_FALSE(is_valid_utf8(text + "\x80"));
}

TEST(Utf8, CompletePrefixLeavesOutTheBeginningOfACharacter) {
  const std::string text = "x\U0001F600";
  EXPECT_EQ(complete_utf8_prefix(""), 0u);
  EXPECT_EQ(complete_utf8_prefix(text.substr(0, 1)), 1u);
  EXPECT_EQ(complete_utf8_prefix(text.substr(0, 2)), 1u);
  EXPECT_EQ(complete_utf8_prefix(text.substr(0, 3)), 1u);
  EXPECT_EQ(complete_utf8_prefix(text.substr(0, 4)), 1u);
  EXPECT_EQ(complete_utf8_prefix(text), 5u);
}

TEST(Utf8, CompletePrefixDoesNotWaitForWhatCanNotComplete) {
  EXPECT_EQ(complete_utf8_prefix("\x80"), 1u);
  EXPECT_EQ(complete_utf8_prefix("\x80\x80\x80\x80"), 4u);
  EXPECT_EQ(complete_utf8_prefix("\xff"), 1u);
  EXPECT_EQ(complete_utf8_prefix("\xe2\x82\xac\xac"), 4u);
}

}  // namespace
}  // namespace bankml
