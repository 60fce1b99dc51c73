#pragma once
// Expectations about thrown Errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string_view>

#include "bankml/base/error.hpp"

namespace bankml::test {

// `operation()` throws an Error of this kind whose message contains `part`.
template <class F>
void expect_error(ErrorKind kind, std::string_view part, F&& operation) {
  try {
    operation();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    EXPECT_THAT(error.what(), testing::HasSubstr(std::string(part)));
    return;
  }
  ADD_FAILURE() << "expected an error that says: " << part;
}

}  // namespace bankml::test
