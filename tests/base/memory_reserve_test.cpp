#include "bankml/base/memory_reserve.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace bankml::test {
namespace {

// Takes pieces until none is left, and gives them back at the end.
class MemoryReserve : public testing::Test {
 protected:
  void* take(std::size_t bytes) {
    void* const piece = allocate_reserved(bytes);
    if (piece != nullptr) taken_.push_back(piece);
    return piece;
  }
  std::size_t take_all(std::size_t bytes) {
    std::size_t count = 0;
    while (take(bytes) != nullptr) ++count;
    return count;
  }
  void give_all_back() {
    for (void* piece : taken_) EXPECT_TRUE(release_reserved(piece));
    taken_.clear();
  }
  void TearDown() override { give_all_back(); }

  std::vector<void*> taken_;
};

TEST_F(MemoryReserve, GivesPiecesThatDoNotOverlapAndAreAligned) {
  for (int i = 0; i < 200; ++i) {
    const std::size_t bytes = i % 2 == 0 ? 1 : 4096;
    void* const piece = take(bytes);
    ASSERT_NE(piece, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(piece) % alignof(std::max_align_t), 0u);
    std::memset(piece, i, bytes);
  }
  for (int i = 0; i < 200; ++i) {
    const auto* piece = static_cast<const unsigned char*>(taken_[static_cast<std::size_t>(i)]);
    for (int k = 0; k < (i % 2 == 0 ? 1 : 4096); ++k) ASSERT_EQ(piece[k], i) << "piece " << i << ", byte " << k;
  }
}

TEST_F(MemoryReserve, HasAtLeastAMegabyteForSmallPieces) {
  EXPECT_GE(take_all(256) * 256, std::size_t{1} << 20);
}

TEST_F(MemoryReserve, HasNothingLargerThanFourKibibytes) {
  EXPECT_EQ(take(4097), nullptr);
  EXPECT_NE(take(4096), nullptr);
}

TEST_F(MemoryReserve, HasAllOfItAgainWhenThePiecesAreGivenBack) {
  const std::size_t all = take_all(256);
  give_all_back();
  EXPECT_EQ(take_all(256), all);
}

TEST_F(MemoryReserve, KnowsWhatIsNotItsOwn) {
  int other = 0;
  EXPECT_FALSE(release_reserved(&other));
  EXPECT_FALSE(release_reserved(nullptr));
}

TEST_F(MemoryReserve, AllOfItInUseIsNoShortageWhileTheSystemHasMemory) {
  take_all(4096);
  EXPECT_FALSE(memory_is_short());
}

}  // namespace
}  // namespace bankml::test
