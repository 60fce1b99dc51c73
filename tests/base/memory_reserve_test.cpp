#include "bankml/base/memory_reserve.hpp"

#include <gtest/gtest.h>

#include <new>

namespace bankml::test {
namespace {

// The handler is called as operator new would, without running out of memory.
class MemoryReserveTest : public testing::Test {
 protected:
  void SetUp() override { install_memory_reserve(); }
  void TearDown() override { std::set_new_handler(nullptr); }
};

TEST_F(MemoryReserveTest, LetsOneAllocationTryAgain) {
  EXPECT_NO_THROW(std::get_new_handler()());
  EXPECT_THROW(std::get_new_handler()(), std::bad_alloc);
}

TEST_F(MemoryReserveTest, IsThereAgainOnceRefilled) {
  std::get_new_handler()();
  refill_memory_reserve();
  EXPECT_NO_THROW(std::get_new_handler()());
}

TEST_F(MemoryReserveTest, IsNotTakenTwice) {
  refill_memory_reserve();
  std::get_new_handler()();
  EXPECT_THROW(std::get_new_handler()(), std::bad_alloc);
}

}  // namespace
}  // namespace bankml::test
