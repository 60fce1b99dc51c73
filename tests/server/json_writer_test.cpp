#include "server/json_writer.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <string>

#include <boost/json/parse.hpp>
#include <cmath>
#include <limits>

namespace bankml {
namespace {

std::string number(double value) {
  std::string out;
  append_json_number(out, value);
  return out;
}

TEST(JsonWriter, PrintsWidenedFloatsInTheirShortestForm) {
  // Recorded from llama-server b11192.
  EXPECT_EQ(number(double{0.8f}), "0.800000011920929");
  EXPECT_EQ(number(double{0.95f}), "0.949999988079071");
  EXPECT_EQ(number(double{0.05f}), "0.05000000074505806");
  EXPECT_EQ(number(double{0.9f}), "0.8999999761581421");
}

// Whatever the stack held before: the digits end where the number ends.
TEST(JsonWriter, PrintsNumbersThatReadBackEqualOnAnyStack) {
  std::mt19937 random(1);
  std::uniform_real_distribution<float> near_one(-20.0f, 20.0f);
  const auto paint_stack = [] {
    volatile char filler[4096];
    for (volatile char& c : filler) c = '7';
  };
  for (int i = 0; i < 2000; ++i) {
    const double number = near_one(random);
    std::string text;
    paint_stack();
    append_json_number(text, number);
    ASSERT_EQ(std::strtod(text.c_str(), nullptr), number) << text;
  }
}

TEST(JsonWriter, MarksWholeNumbersAsFloatingPoint) {
  EXPECT_EQ(number(0.0), "0.0");
  EXPECT_EQ(number(-1.0), "-1.0");
  EXPECT_EQ(number(100.0), "100.0");
  EXPECT_EQ(number(123456789012345.0), "123456789012345.0");
}

TEST(JsonWriter, UsesExponentsForVeryLargeAndVerySmallNumbers) {
  EXPECT_EQ(number(double{std::numeric_limits<float>::lowest()}), "-3.4028234663852886e+38");
  EXPECT_EQ(number(1e15), "1e+15");
  EXPECT_EQ(number(0.0001), "0.0001");
  EXPECT_EQ(number(1e-5), "1e-05");
  EXPECT_EQ(number(1.5e-7), "1.5e-07");
  EXPECT_EQ(number(5e-324), "5e-324");
}

TEST(JsonWriter, PrintsWhatIsNotFiniteAsNull) {
  EXPECT_EQ(number(std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(number(-std::numeric_limits<double>::infinity()), "null");
  EXPECT_EQ(number(std::nan("")), "null");
}

TEST(JsonWriter, EscapesOnlyWhatJsonRequires) {
  EXPECT_EQ(to_json("a\"b\\c\b\f\n\r\t\x01/\x7f\xc3\xa9"), "\"a\\\"b\\\\c\\b\\f\\n\\r\\t\\u0001/\x7f\xc3\xa9\"");
}

TEST(JsonWriter, ReplacesInvalidUtf8) {
  EXPECT_EQ(to_json("ok\xff\xe2\x82!"), "\"ok\xef\xbf\xbd\xef\xbf\xbd!\"");
}

TEST(JsonWriter, IsCompactAndKeepsTheOrderOfKeys) {
  const auto value = boost::json::parse(R"({ "b": [1, -2, true, null, {}], "a": { "c": "d" } })");
  EXPECT_EQ(to_json(value), R"({"b":[1,-2,true,null,{}],"a":{"c":"d"}})");
}

TEST(JsonWriter, PrintsTheLargestIntegersExactly) {
  EXPECT_EQ(to_json(std::numeric_limits<std::uint64_t>::max()), "18446744073709551615");
  EXPECT_EQ(to_json(std::numeric_limits<std::int64_t>::min()), "-9223372036854775808");
}

}  // namespace
}  // namespace bankml
