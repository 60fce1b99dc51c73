// Part of every test program of kernels: after each test, tells what it could be asked to leave out.
#include <gtest/gtest.h>

#include <string>

#include "mutation.hpp"

namespace bankml::host {
namespace {

class ListSites final : public testing::EmptyTestEventListener {
  void OnTestEnd(const testing::TestInfo& test) override {
    const std::string name = std::string(test.test_suite_name()) + "." + test.name();
    list_sites(name.c_str(), test.result()->elapsed_time());
  }
};

// The list of listeners owns it.
[[maybe_unused]] const bool installed = [] {
  testing::UnitTest::GetInstance()->listeners().Append(new ListSites);
  return true;
}();

}  // namespace
}  // namespace bankml::host
