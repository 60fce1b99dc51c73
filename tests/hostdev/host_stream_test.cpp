// The order of work between streams, what is refused, errors and faults.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "bankml/base/error.hpp"
#include "device.cuh"
#include "device/cuda/graph.hpp"
#include "host_runtime.hpp"

namespace bankml::host {
namespace {

using testing::HasSubstr;

template <class F>
std::string thrown(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

__global__ void add(int* to, const int* from, int amount, int n) {
  for (int i = static_cast<int>(threadIdx.x); i < n; i += static_cast<int>(blockDim.x)) to[i] = from[i] + amount;
}
__global__ void diverge() {
  if (threadIdx.x == 0) __syncthreads();
}

constexpr int kInts = 64;
constexpr std::size_t kBytes = kInts * sizeof(int);

struct Fixture {
  explicit Fixture(HostOptions options = {}) : runtime(options) {}
  HostRuntime runtime;
  Buffer device = runtime.allocate(kBytes), other = runtime.allocate(kBytes), pinned = runtime.allocate_host(kBytes);
  // After the buffers: they end first, with the work that uses those.
  std::unique_ptr<Stream> a = runtime.make_stream(), b = runtime.make_stream();

  void fill(int value) {
    for (int i = 0; i < kInts; ++i) pinned.as<int>()[i] = value;
  }
  void add_one(Stream& stream, const Buffer& to, const Buffer& from) {
    launch(add, {.grid = 1, .block = 32}, stream, to.as<int>(), from.as<int>(), 1, kInts);
  }
};

TEST(HostStream, RunsWorkInOrder) {
  Fixture f;
  f.fill(1);
  f.a->copy_to_device(f.device.data(), f.pinned.data(), kBytes);
  f.add_one(*f.a, f.other, f.device);
  f.a->copy_on_device(f.device.data(), f.other.data(), kBytes);
  f.a->copy_to_host(f.pinned.data(), f.device.data(), kBytes);
  f.a->synchronize();
  EXPECT_EQ(f.pinned.as<int>()[kInts - 1], 2);
}

TEST(HostStream, WaitsForAnotherStreamsEvent) {
  Fixture f;
  const auto event = f.runtime.make_event(), later = f.runtime.make_event();
  EXPECT_TRUE(event->ready());
  f.fill(7);
  hold(*f.a);
  f.a->copy_to_device(f.device.data(), f.pinned.data(), kBytes);
  f.a->record(*event);
  f.b->wait(*event);
  f.add_one(*f.b, f.other, f.device);
  f.b->record(*later);
  EXPECT_FALSE(event->ready());
  EXPECT_FALSE(later->ready());
  release(*f.a);
  later->wait();
  f.b->copy_to_host(f.pinned.data(), f.other.data(), kBytes);
  f.b->synchronize();
  EXPECT_EQ(f.pinned.as<int>()[0], 8);
}

TEST(HostStream, AWaitMeansTheEventAsItWasRecordedThen) {
  Fixture f;
  const auto event = f.runtime.make_event(), done = f.runtime.make_event();
  f.a->record(*event);
  f.b->wait(*event);
  f.b->record(*done);
  f.a->synchronize();
  hold(*f.a);
  f.a->record(*event);
  done->wait();
  EXPECT_FALSE(event->ready());
  release(*f.a);
  event->wait();
}

// Two streams hand a buffer to and fro; whatever the delays, no addition is lost.
TEST(HostStream, RandomDelaysChangeNothing) {
  for (std::uint64_t seed = 0; seed < 100; ++seed) {
    Fixture f({.order = {}, .max_delay = std::chrono::microseconds(200), .delay_seed = seed});
    const auto event = f.runtime.make_event();
    f.fill(0);
    f.a->copy_to_device(f.device.data(), f.pinned.data(), kBytes);
    for (int i = 0; i < 4; ++i) {
      f.add_one(*f.a, f.other, f.device);
      f.a->record(*event);
      f.b->wait(*event);
      f.add_one(*f.b, f.device, f.other);
      f.b->record(*event);
      f.a->wait(*event);
    }
    f.a->copy_to_host(f.pinned.data(), f.device.data(), kBytes);
    f.a->synchronize();
    ASSERT_EQ(f.pinned.as<int>()[5], 8) << "seed " << seed;
  }
}

TEST(HostStream, RefusesCopiesThatADeviceCouldNotDo) {
  Fixture f;
  std::vector<std::byte> pageable(100'000);
  const Buffer large = f.runtime.allocate(pageable.size());
  EXPECT_THAT(thrown([&] { f.a->copy_to_device(large.data(), pageable.data(), pageable.size()); }),
              HasSubstr("100000 bytes from memory that isn't pinned"));
  EXPECT_THAT(thrown([&] { f.a->copy_to_host(pageable.data(), large.data(), 8); }), HasSubstr("isn't pinned"));
  EXPECT_THAT(thrown([&] { f.a->copy_to_device(f.device.data() + 4, f.pinned.data(), kBytes); }),
              HasSubstr("256 bytes from byte 4 of a buffer of 256"));
  EXPECT_THAT(thrown([&] { f.a->copy_to_device(f.pinned.data(), f.pinned.data(), 4); }),
              HasSubstr("pinned host memory"));
  EXPECT_THAT(thrown([&] { f.a->copy_to_host(f.device.data(), f.device.data(), 4); }), HasSubstr("is device memory"));
  EXPECT_THAT(thrown([&] { f.a->copy_on_device(f.device.data(), pageable.data(), 4); }), HasSubstr("no buffer's"));
  f.a->synchronize();
}

TEST(HostStream, CopiesFewPageableBytesAtTheCall) {
  Fixture f;
  hold(*f.a);
  int value = 5;
  f.a->copy_to_device(f.device.data(), &value, sizeof value);
  value = 6;
  f.a->copy_to_host(f.pinned.data(), f.device.data(), sizeof value);
  release(*f.a);
  f.a->synchronize();
  EXPECT_EQ(f.pinned.as<int>()[0], 5);
}

TEST(HostStream, RefusesToWaitForAnEventThatWasNeverRecorded) {
  Fixture f;
  const auto event = f.runtime.make_event();
  EXPECT_THAT(thrown([&] { f.a->wait(*event); }), HasSubstr("never recorded"));
}

TEST(HostStream, KeepsAnErrorUntilItIsAskedFor) {
  Fixture f;
  const auto event = f.runtime.make_event();
  launch(diverge, {.grid = 1, .block = 2}, *f.a);
  f.a->record(*event);
  EXPECT_THAT(thrown([&] { event->wait(); }), HasSubstr("diverge block (0,0,0): deadlock"));
  EXPECT_THAT(thrown([&] { f.a->copy_on_device(f.device.data(), f.other.data(), 4); }),
              HasSubstr("work for a stream after its error: diverge"));
  EXPECT_THAT(thrown([&] { f.a->synchronize(); }), HasSubstr("diverge"));
  EXPECT_EQ(thrown([&] { f.a->synchronize(); }), "no error");
  EXPECT_EQ(thrown([&] { f.a->copy_on_device(f.device.data(), f.other.data(), 4); }), "no error");
}

TEST(HostStream, AStreamThatWaitsForAFailedOneFailsToo) {
  Fixture f;
  const auto event = f.runtime.make_event();
  hold(*f.a);
  launch(diverge, {.grid = 1, .block = 2}, *f.a);
  f.a->record(*event);
  f.b->wait(*event);
  release(*f.a);
  EXPECT_THAT(thrown([&] { f.b->synchronize(); }), HasSubstr("waited for another that failed: diverge"));
}

TEST(HostStream, AChosenOperationFailsOnce) {
  Fixture f;
  f.runtime.fail_at(Operation::allocation, 2);
  EXPECT_EQ(thrown([&] { f.runtime.allocate(8); }), "no error");
  EXPECT_EQ(thrown([&] { f.runtime.allocate_host(8); }), "can't allocate 8 bytes of pinned memory");
  EXPECT_EQ(thrown([&] { f.runtime.allocate(8); }), "no error");
  f.runtime.fail_at(Operation::copy, 1);
  f.a->copy_on_device(f.device.data(), f.other.data(), 4);
  EXPECT_THAT(thrown([&] { f.a->synchronize(); }), HasSubstr("copy failed"));
  f.runtime.fail_at(Operation::launch, 1);
  f.add_one(*f.a, f.device, f.other);
  EXPECT_THAT(thrown([&] { f.a->synchronize(); }), HasSubstr("launch failed"));
  f.add_one(*f.a, f.device, f.other);
  EXPECT_EQ(thrown([&] { f.a->synchronize(); }), "no error");
}

TEST(HostStream, CountsWhatIsAlive) {
  HostRuntime runtime;
  {
    const Buffer one = runtime.allocate(100), two = runtime.allocate_host(20);
    EXPECT_EQ(runtime.buffers(), 2u);
    EXPECT_EQ(runtime.bytes(), 120u);
  }
  EXPECT_EQ(runtime.buffers(), 0u);
}

TEST(HostStream, ReplaysACaptureWithFrozenArguments) {
  Fixture f;
  f.fill(1);
  f.a->copy_to_device(f.device.data(), f.pinned.data(), kBytes);
  f.a->synchronize();
  int amount = 10;
  begin_capture(*f.a);
  launch(add, {.grid = 1, .block = 32}, *f.a, f.other.as<int>(), f.device.as<int>(), amount, kInts);
  f.a->copy_on_device(f.device.data(), f.other.data(), kBytes);
  const auto event = f.runtime.make_event();
  EXPECT_THAT(thrown([&] { f.a->record(*event); }), HasSubstr("captured"));
  EXPECT_THAT(thrown([&] { f.a->synchronize(); }), HasSubstr("captured"));
  const auto graph = end_capture(*f.a);
  amount = 1000;
  for (int i = 0; i < 3; ++i) graph->launch(*f.a);
  f.a->copy_to_host(f.pinned.data(), f.device.data(), kBytes);
  f.a->synchronize();
  EXPECT_EQ(f.pinned.as<int>()[0], 31);
}

}  // namespace
}  // namespace bankml::host
