#include "bankml/device/pinned_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

constexpr std::size_t kPiece = 64 * 1024;

enum class Refusal { error, no_memory };  // no_memory: not even for saying so

// Gives host memory, and notes how much; refuses to from call `fails_from` on. Nothing else works.
class PinningDevice final : public Device {
 public:
  explicit PinningDevice(int fails_from = -1, Refusal refusal = Refusal::error)
      : fails_from_(fails_from), refusal_(refusal) {}
  std::string description() const override { return "pins memory"; }
  bool shares_host_memory() const noexcept override { return false; }
  Buffer allocate(std::size_t) override { throw unsupported(); }
  Buffer allocate_host(std::size_t bytes) override {
    if (fails_from_ >= 0 && calls++ >= fails_from_) {
      if (refusal_ == Refusal::no_memory) throw std::bad_alloc();
      throw Error(ErrorKind::out_of_memory, "no more pages may be locked");
    }
    pinned += bytes;
    const auto release = [](void* data, std::size_t size, void* device) {
      static_cast<PinningDevice*>(device)->pinned -= size;
      std::free(data);
    };
    return Buffer(std::aligned_alloc(64, bytes), bytes, release, this);
  }
  std::unique_ptr<Stream> make_stream() override { throw unsupported(); }
  std::unique_ptr<Event> make_event() override { throw unsupported(); }
  std::unique_ptr<Weight> load_weight(DType, std::int64_t, std::int64_t, const std::byte*) override {
    throw unsupported();
  }
  std::unique_ptr<Weight> load_experts(DType, int, std::int64_t, std::int64_t, const std::byte*, std::size_t) override {
    throw unsupported();
  }
  std::unique_ptr<Activation> make_activation(std::int64_t, std::int64_t, ActFormats) override { throw unsupported(); }
  std::unique_ptr<ExpertChoice> make_expert_choice(int, int, int) override { throw unsupported(); }
  Ops& ops() noexcept override { std::abort(); }

  std::atomic<std::size_t> pinned{0};
  int calls = 0;

 private:
  static Error unsupported() { return Error(ErrorKind::unsupported, "only host memory"); }
  int fails_from_;
  Refusal refusal_;
};

PinnedPoolOptions options(std::size_t limit_pieces, std::size_t slab_pieces) {
  return {.piece_bytes = kPiece,
          .limit_bytes = limit_pieces * kPiece,
          .slab_bytes = slab_pieces * kPiece,
          .ahead_of_need = false};
}

TEST(PinnedPool, TakesNothingBeforeItIsNeeded) {
  PinningDevice device;
  const PinnedPool pool(device, options(8, 4));
  EXPECT_EQ(pool.usage().slabs, 0u);
  EXPECT_EQ(pool.room(), 8u);
}

TEST(PinnedPool, GrowsSlabBySlabUpToTheLimitAndNeverBeyond) {
  PinningDevice device;
  PinnedPool pool(device, options(6, 4));
  std::vector<Buffer> pieces;
  std::set<void*> seen;
  for (int i = 0; i < 6; ++i) {
    pieces.push_back(pool.take());
    ASSERT_TRUE(pieces.back()) << i;
    EXPECT_EQ(pieces.back().bytes(), kPiece);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pieces.back().data()) % 64, 0u);
    EXPECT_TRUE(pool.pinned(pieces.back()));
    seen.insert(pieces.back().data());
    EXPECT_EQ(pool.usage().slabs, i < 4 ? 1u : 2u);
  }
  EXPECT_EQ(seen.size(), 6u);
  EXPECT_EQ(pool.room(), 0u);
  EXPECT_FALSE(pool.take());
  EXPECT_EQ(pool.usage().pinned_bytes, 6 * kPiece);
  EXPECT_EQ(pool.usage().used_bytes, 6 * kPiece);
  pieces.pop_back();
  EXPECT_EQ(pool.room(), 1u);
  EXPECT_TRUE(pool.take());
}

TEST(PinnedPool, PiecesThatComeBackAreUsedAgain) {
  PinningDevice device;
  PinnedPool pool(device, options(100, 2));
  for (int i = 0; i < 50; ++i) {
    const Buffer piece = pool.take();
    ASSERT_TRUE(piece);
  }
  EXPECT_EQ(pool.usage().slabs, 1u);
  EXPECT_EQ(pool.usage().used_bytes, 0u);
}

TEST(PinnedPool, ALimitBelowOnePieceLeavesItEmpty) {
  PinningDevice device;
  PinnedPool pool(device, {.piece_bytes = kPiece, .limit_bytes = kPiece - 1});
  EXPECT_EQ(pool.room(), 0u);
  EXPECT_FALSE(pool.take());
}

TEST(PinnedPool, APieceLargerThanASlabIsASlabOfItsOwn) {
  PinningDevice device;
  PinnedPool pool(device, {.piece_bytes = kPiece, .limit_bytes = 2 * kPiece, .slab_bytes = 1, .ahead_of_need = false});
  const Buffer one = pool.take(), two = pool.take();
  EXPECT_TRUE(one);
  EXPECT_TRUE(two);
  EXPECT_EQ(pool.usage().slabs, 2u);
}

TEST(PinnedPool, GoesOnWithPageableMemoryWhenPinningFails) {
  PinningDevice device(1);
  PinnedPool pool(device, options(6, 2));
  std::vector<Buffer> pieces;
  for (int i = 0; i < 6; ++i) pieces.push_back(pool.take());
  EXPECT_TRUE(pool.pinned(pieces[1]));
  EXPECT_FALSE(pool.pinned(pieces[2]));
  EXPECT_FALSE(pool.pinned(pieces[5]));
  EXPECT_EQ(device.calls, 2) << "it isn't tried again";
  EXPECT_EQ(pool.usage().pinned_bytes, 2 * kPiece);
  EXPECT_EQ(pool.usage().pageable_bytes, 4 * kPiece);
}

TEST(PinnedPool, GoesOnWithPageableMemoryWhereThereIsNotEvenMemoryToSayWhy) {
  PinningDevice device(0, Refusal::no_memory);
  PinnedPool pool(device, options(4, 2));
  const Buffer one = pool.take(), two = pool.take(), three = pool.take();
  EXPECT_TRUE(one);
  EXPECT_TRUE(three);
  EXPECT_EQ(pool.usage().pageable_bytes, 4 * kPiece);
}

TEST(PinnedPool, TheThreadThatMakesSlabsOutlivesALackOfMemory) {
  PinningDevice device(0, Refusal::no_memory);
  PinnedPoolOptions ahead = options(8, 4);
  ahead.ahead_of_need = true;
  const PinnedPool pool(device, ahead);
  while (pool.usage().slabs == 0) std::this_thread::yield();
  EXPECT_EQ(pool.usage().pageable_bytes, 4 * kPiece);
}

TEST(PinnedPool, DoesNotGrowWhereTheSpareMemoryCannotBeAskedFor) {
  PinningDevice device;
  bool broken = true;
  PinnedPoolOptions asking = options(0, 2);
  asking.available = [&]() -> std::optional<std::uint64_t> {
    if (broken) throw std::bad_alloc();
    return 2 * kPiece;
  };
  PinnedPool pool(device, asking);
  EXPECT_FALSE(pool.take());
  broken = false;
  EXPECT_TRUE(pool.take());
}

TEST(PinnedPool, UnpinsAtItsEnd) {
  PinningDevice device;
  {
    PinnedPool pool(device, options(6, 2));
    const Buffer piece = pool.take(), other = pool.take(), third = pool.take();
    EXPECT_EQ(device.pinned, 4 * kPiece);
  }
  EXPECT_EQ(device.pinned, 0u);
}

TEST(PinnedPool, RefusesMemoryThatTheMachineLacks) {
  PinningDevice device(0);
  constexpr std::size_t kHuge = std::size_t{1} << 60;
  PinnedPool pool(device, {.piece_bytes = kHuge, .limit_bytes = kHuge, .slab_bytes = kHuge, .ahead_of_need = false});
  EXPECT_FALSE(pool.take());
  EXPECT_EQ(pool.usage().slabs, 0u);
}

TEST(PinnedPool, GrowsOnlyIntoWhatTheMachineCanSpare) {
  PinningDevice device;
  std::uint64_t spare = 2 * kPiece;
  PinnedPoolOptions asking = options(0, 4);  // no limit of its own
  asking.available = [&] { return spare; };
  PinnedPool pool(device, asking);
  EXPECT_EQ(pool.room(), 2u);
  const Buffer one = pool.take();
  spare = 0;
  const Buffer two = pool.take();
  EXPECT_TRUE(two);
  EXPECT_FALSE(pool.take());
  EXPECT_EQ(device.pinned, 2 * kPiece);
  spare = kPiece;
  EXPECT_TRUE(pool.take()) << "memory has come back";
}

TEST(PinnedPool, MakesItsFirstSlabBeforeItIsAskedFor) {
  PinningDevice device;
  PinnedPoolOptions ahead = options(8, 4);
  ahead.ahead_of_need = true;
  const PinnedPool pool(device, ahead);
  while (pool.usage().slabs == 0) std::this_thread::yield();
  EXPECT_EQ(pool.usage().pinned_bytes, 4 * kPiece);
}

TEST(PinnedPool, ThreadsShareItWhileSlabsAreMadeAhead) {
  PinningDevice device;
  PinnedPoolOptions shared = options(16, 2);
  shared.ahead_of_need = true;
  PinnedPool pool(device, shared);
  std::atomic<int> refused{0};
  std::vector<std::jthread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        Buffer mine[4];
        for (Buffer& piece : mine) {
          piece = pool.take();
          if (!piece) {
            ++refused;
            continue;
          }
          *piece.data() = std::byte{1};
        }
      }
    });
  }
  threads.clear();
  EXPECT_EQ(refused, 0) << "16 pieces are enough for four threads with four each";
  EXPECT_EQ(pool.usage().used_bytes, 0u);
  EXPECT_LE(pool.usage().pinned_bytes, 16 * kPiece);
}

}  // namespace
}  // namespace bankml
