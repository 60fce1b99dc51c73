// Synchronisation left out on purpose: ThreadSanitizer must report each, and nothing where it is right.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>

#include "device.cuh"
#include "host_runtime.hpp"
#include "ptx.cuh"
#include "warp.cuh"

#ifdef __SANITIZE_THREAD__
std::atomic<int> reports{0};
extern "C" {
// Called by ThreadSanitizer's runtime for each report. Reports are what is tested here: they don't make the program
// fail.
void __tsan_on_report(void*) {
  reports.fetch_add(1, std::memory_order_relaxed);
}
const char* __tsan_default_options() {
  return "exitcode=0:suppress_equal_stacks=0:suppress_equal_addresses=0:symbolize=0:log_path=/dev/null";
}
}
#endif

namespace bankml::host {
namespace {

constexpr int kThreads = 64;

// Missing: which synchronisation is left out; 0: none.
template <int kMissing>
__global__ void shared_exchange(int* out) {
  SHARED(int[kThreads], values);
  const int i = static_cast<int>(threadIdx.x);
  for (int round = 0; round < 3; ++round) {
    values[i] = i + round;
    if (kMissing != 1) __syncthreads();
    out[i] = values[(i + 1) % kThreads];
    if (kMissing != 2) __syncthreads();
  }
}

template <int kMissing>
__global__ void lockstep(int* out) {
  SHARED(int[32], values);
  const int i = static_cast<int>(threadIdx.x);
  values[i] = i;
  if (kMissing != 1) __syncwarp();
  if (i < 16) values[i] += values[i + 16];
  if (kMissing == 2) __shfl_sync(kAllLanes, i, 0);  // a shuffle orders no memory
  if (kMissing == 0) __syncwarp();
  if (i < 8) values[i] += values[i + 8];
  out[i] = values[i];
}

template <int kMissing>
__global__ void last_block(int* sum, int* parts, unsigned* counter) {
  SHARED(bool, last);
  if (threadIdx.x == 0) parts[blockIdx.x] = 1;
  if (kMissing != 1) __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    if (kMissing == 2) {
      last = (*counter)++ == gridDim.x - 1;
    } else {
      last = atomicAdd(counter, 1u) == gridDim.x - 1;
    }
  }
  if (kMissing != 3) __threadfence();
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  for (unsigned i = 0; i < gridDim.x; ++i) *sum += parts[i];
}

template <int kMissing>
__global__ void one_place(int* out) {
  if (kMissing == 1) {
    if (threadIdx.x == 0) out[0] = static_cast<int>(blockIdx.x);
  } else if (threadIdx.x == 0) {
    out[blockIdx.x] = 1;
  }
}

template <int kMissing>
__global__ void pipeline(float4* out, const float4* in) {
  constexpr int kTiles = 4;
  SHARED(float4[2][32], stages);
  const int i = static_cast<int>(threadIdx.x);
  cp_async_16(&stages[0][i], in + i);
  cp_async_commit();
  for (int t = 0; t < kTiles; ++t) {
    if (t + 1 < kTiles) cp_async_16(&stages[(t + 1) % 2][i], in + (t + 1) * 32 + i);
    cp_async_commit();
    cp_async_wait<1>();
    if (kMissing != 1) __syncthreads();
    out[t * 32 + i] = stages[t % 2][(i + 1) % 32];
    if (kMissing != 2) __syncthreads();
  }
}

class Races : public testing::Test {
 protected:
  void SetUp() override {
#ifndef __SANITIZE_THREAD__
    GTEST_SKIP() << "ThreadSanitizer is not part of this build";
#endif
  }
  template <class F>
  static int reports_of(F run) {
#ifdef __SANITIZE_THREAD__
    reports = 0;
    for (const Order order : {Order::forward(), Order::reverse(), Order::random(1)}) {
      HostRuntime runtime({.order = order});
      const auto stream = runtime.make_stream();
      const Buffer memory = runtime.allocate(1 << 16), in = runtime.allocate(1 << 16);
      std::fill_n(memory.as<int>(), memory.bytes() / sizeof(int), 0);
      run(runtime, *stream, memory.as<int>(), in);
      stream->synchronize();
    }
    return reports;
#else
    (void)run;
    return 0;
#endif
  }
};

TEST_F(Races, MissingBarriersAreSeen) {
  const auto run = [](auto kernel) {
    return reports_of([=](HostRuntime&, Stream& stream, int* memory, const Buffer&) {
      launch(kernel, {.grid = 3, .block = kThreads}, stream, memory);
    });
  };
  // Blocks write the same places: one each is enough to see that alone.
  const auto alone = [](auto kernel) {
    return reports_of([=](HostRuntime&, Stream& stream, int* memory, const Buffer&) {
      launch(kernel, {.grid = 1, .block = kThreads}, stream, memory);
    });
  };
  EXPECT_EQ(alone(shared_exchange<0>), 0);
  EXPECT_GT(alone(shared_exchange<1>), 0);
  EXPECT_GT(alone(shared_exchange<2>), 0);
  EXPECT_GT(run(shared_exchange<0>), 0);
}

TEST_F(Races, AssumedLockstepIsSeen) {
  const auto run = [](auto kernel) {
    return reports_of([=](HostRuntime&, Stream& stream, int* memory, const Buffer&) {
      launch(kernel, {.grid = 1, .block = 32}, stream, memory);
    });
  };
  EXPECT_EQ(run(lockstep<0>), 0);
  EXPECT_GT(run(lockstep<1>), 0);
  EXPECT_GT(run(lockstep<2>), 0);
}

TEST_F(Races, MissingFencesAndAtomicsAreSeen) {
  const auto run = [](auto kernel) {
    return reports_of([=](HostRuntime&, Stream& stream, int* memory, const Buffer&) {
      launch(kernel, {.grid = 5, .block = 32}, stream, memory, memory + 100, reinterpret_cast<unsigned*>(memory + 200));
    });
  };
  EXPECT_EQ(run(last_block<0>), 0);
  EXPECT_GT(run(last_block<1>), 0);
  EXPECT_GT(run(last_block<2>), 0);
  EXPECT_GT(run(last_block<3>), 0);
}

TEST_F(Races, TwoBlocksWritingOnePlaceAreSeen) {
  const auto run = [](auto kernel) {
    return reports_of([=](HostRuntime&, Stream& stream, int* memory, const Buffer&) {
      launch(kernel, {.grid = 2, .block = 32}, stream, memory);
    });
  };
  EXPECT_EQ(run(one_place<0>), 0);
  EXPECT_GT(run(one_place<1>), 0);
}

TEST_F(Races, BuffersOfAPipelineReusedTooEarlyAreSeen) {
  const auto run = [](auto kernel) {
    return reports_of([=](HostRuntime&, Stream& stream, int* memory, const Buffer& in) {
      launch(kernel, {.grid = 1, .block = 32}, stream, reinterpret_cast<float4*>(memory), in.as<float4>());
    });
  };
  EXPECT_EQ(run(pipeline<0>), 0);
  EXPECT_GT(run(pipeline<1>), 0);
  EXPECT_GT(run(pipeline<2>), 0);
}

__global__ void write_all(int* p) {
  p[threadIdx.x] = static_cast<int>(threadIdx.x);
}
__global__ void read_all(int* sums, const int* p) {
  sums[threadIdx.x] = p[threadIdx.x] + 1;
}

TEST_F(Races, MissingEventWaitsAreSeen) {
  const auto run = [](bool wait) {
    return reports_of([=](HostRuntime& runtime, Stream& stream, int* memory, const Buffer&) {
      const auto other = runtime.make_stream();
      const auto event = runtime.make_event();
      launch(write_all, {.grid = 1, .block = 32}, stream, memory);
      stream.record(*event);
      if (wait) other->wait(*event);
      launch(read_all, {.grid = 1, .block = 32}, *other, memory + 100, static_cast<const int*>(memory));
      other->synchronize();
    });
  };
  EXPECT_EQ(run(true), 0);
  EXPECT_GT(run(false), 0);
}

TEST_F(Races, AHostThatReadsTooEarlyIsSeen) {
  const auto run = [](bool synchronize) {
    return reports_of([=](HostRuntime& runtime, Stream& stream, int* memory, const Buffer&) {
      const Buffer pinned = runtime.allocate_host(32 * sizeof(int));
      launch(write_all, {.grid = 1, .block = 32}, stream, memory);
      stream.copy_to_host(pinned.data(), memory, pinned.bytes());
      if (synchronize) stream.synchronize();
      volatile int first = pinned.as<int>()[0];
      (void)first;
      stream.synchronize();
    });
  };
  EXPECT_EQ(run(true), 0);
  EXPECT_GT(run(false), 0);
}

// Memory is used again while the stream still reads it.
TEST_F(Races, AHostThatWritesTooEarlyIsSeen) {
  const auto run = [](bool synchronize) {
    return reports_of([=](HostRuntime& runtime, Stream& stream, int* memory, const Buffer&) {
      const Buffer pinned = runtime.allocate_host(32 * sizeof(int));
      stream.copy_to_device(memory, pinned.data(), pinned.bytes());
      if (synchronize) stream.synchronize();
      pinned.as<int>()[0] = 1;
      stream.synchronize();
    });
  };
  EXPECT_EQ(run(true), 0);
  EXPECT_GT(run(false), 0);
}

}  // namespace
}  // namespace bankml::host
