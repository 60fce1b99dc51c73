#include "bankml/base/error.hpp"

#include <gtest/gtest.h>

namespace bankml {
namespace {

TEST(Error, KeepsItsKindAndText) {
  const Error error(ErrorKind::busy, "try again later");
  EXPECT_EQ(error.kind(), ErrorKind::busy);
  EXPECT_STREQ(error.what(), "try again later");
}

}  // namespace
}  // namespace bankml
