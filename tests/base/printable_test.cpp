#include "base/printable.hpp"

#include <gtest/gtest.h>

#include <string>

namespace bankml {
namespace {

TEST(Printable, PutsTextInQuotes) {
  EXPECT_EQ(printable(""), "''");
  EXPECT_EQ(printable("a b~"), "'a b~'");
}

TEST(Printable, ShowsOtherBytesThanAsciiByTheirNumber) {
  EXPECT_EQ(printable("a\n\x7f\xc3\xa9"), R"('a\x0a\x7f\xc3\xa9')");
}

TEST(Printable, CutsLongText) {
  EXPECT_EQ(printable(std::string(80, 'x')), "'" + std::string(80, 'x') + "'");
  EXPECT_EQ(printable(std::string(81, 'x')), "'" + std::string(80, 'x') + "...'");
}

}  // namespace
}  // namespace bankml
