// Kernels written for these tests, right and wrong ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "bankml/base/error.hpp"
#include "device.cuh"
#include "host_runtime.hpp"
#include "orders.hpp"
#include "ptx.cuh"
#include "warp.cuh"

namespace bankml::host {
namespace {

using testing::HasSubstr;

class Scheduling : public OnEveryOrder {
 protected:
  // What synchronize() says of a launch that must fail.
  std::string failure() {
    try {
      stream().synchronize();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::device);
      return error.what();
    }
    return "no error";
  }
};
INSTANTIATE_TEST_SUITE_P(, Scheduling, every_order(), order_name);

template <int kThreads>
__global__ void __launch_bounds__(kThreads) rms_norm(float* y, const float* x, int dim, float eps) {
  SHARED(float[kThreads / 32], partial);
  const float* row = x + std::int64_t{blockIdx.x} * dim;
  float sum = 0;
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += kThreads) sum = fmaf(row[i], row[i], sum);
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (const float part : partial) sum += part;
  const float scale = 1.0f / std::sqrt(sum / static_cast<float>(dim) + eps);
  for (int i = static_cast<int>(threadIdx.x); i < dim; i += kThreads) {
    y[std::int64_t{blockIdx.x} * dim + i] = row[i] * scale;
  }
}

TEST_P(Scheduling, RunsEveryThreadOfEveryBlock) {
  constexpr int kRows = 3, kDim = 129;
  std::vector<float> x(kRows * kDim);
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) - 8.0f;
  const Buffer in = upload(x), out = runtime().allocate(x.size() * sizeof(float));
  launch(rms_norm<128>, {.grid = kRows, .block = 128}, stream(), out.as<float>(), in.as<float>(), kDim, 1e-5f);
  const std::vector<float> y = download<float>(out);
  for (int r = 0; r < kRows; ++r) {
    double squares = 0;
    for (int i = 0; i < kDim; ++i) squares += double{x[r * kDim + i]} * double{x[r * kDim + i]};
    const double scale = 1 / std::sqrt(squares / kDim + 1e-5);
    for (int i = 0; i < kDim; ++i) EXPECT_NEAR(y[r * kDim + i], x[r * kDim + i] * scale, 1e-6) << r << " " << i;
  }
}

__global__ void write_indices(int* out) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  out[block * blockDim.x * blockDim.y * blockDim.z + thread] = static_cast<int>(block * 1000 + thread);
}

TEST_P(Scheduling, IndexesThreeDimensions) {
  const Buffer out = runtime().allocate(2 * 3 * 2 * 24 * sizeof(int));
  launch(write_indices, {.grid = {2, 3, 2}, .block = {4, 3, 2}}, stream(), out.as<int>());
  const std::vector<int> got = download<int>(out);
  for (int b = 0; b < 12; ++b) {
    for (int t = 0; t < 24; ++t) EXPECT_EQ(got[static_cast<std::size_t>(b * 24 + t)], b * 1000 + t);
  }
}

__global__ void warp_operations(int* out) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  int* mine = out + 8 * threadIdx.x;
  mine[0] = __shfl_sync(kAllLanes, lane * 10, 5);
  mine[1] = __shfl_up_sync(kAllLanes, lane, 3);
  mine[2] = __shfl_down_sync(kAllLanes, lane, 4, 8);
  mine[3] = __shfl_xor_sync(kAllLanes, lane, 1);
  mine[4] = static_cast<int>(__ballot_sync(kAllLanes, lane < 4));
  mine[5] = warp_sum(lane);
  mine[6] = warp_sum<4>(lane);
  mine[7] = lane < 8 ? __shfl_xor_sync(0xff, lane, 7) : -1;
}

TEST_P(Scheduling, WarpOperationsGiveEachLaneItsValue) {
  const Buffer out = runtime().allocate(64 * 8 * sizeof(int));
  launch(warp_operations, {.grid = 1, .block = 64}, stream(), out.as<int>());
  const std::vector<int> got = download<int>(out);
  for (int t = 0; t < 64; ++t) {
    const int lane = t % 32;
    const int expected[8] = {50,
                             lane < 3 ? lane : lane - 3,
                             lane % 8 + 4 > 7 ? lane : lane + 4,
                             lane ^ 1,
                             15,
                             31 * 16,
                             4 * (lane / 4 * 4) + 6,
                             lane < 8 ? 7 - lane : -1};
    for (int i = 0; i < 8; ++i) EXPECT_EQ(got[static_cast<std::size_t>(8 * t + i)], expected[i]) << t << " " << i;
  }
}

__global__ void count_votes(int* out) {
  const int i = static_cast<int>(threadIdx.x);
  out[3 * i] = __syncthreads_count(i < 5);
  out[3 * i + 1] = __syncthreads_or(i == 63);
  out[3 * i + 2] = __syncthreads_and(i != 63);
}

TEST_P(Scheduling, BarriersCountVotes) {
  const Buffer out = runtime().allocate(64 * 3 * sizeof(int));
  launch(count_votes, {.grid = 1, .block = 64}, stream(), out.as<int>());
  const std::vector<int> got = download<int>(out);
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(got[3 * i], 5);
    EXPECT_EQ(got[3 * i + 1], 1);
    EXPECT_EQ(got[3 * i + 2], 0);
  }
}

// The last block to finish adds up what all have written (CUDA C++ Programming Guide, "Memory Fence Functions").
__global__ void sum_blocks(int* sum, int* parts, unsigned* counter) {
  SHARED(bool, last);
  if (threadIdx.x == 0) parts[blockIdx.x] = static_cast<int>(blockIdx.x) + 1;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(counter, 1u) == gridDim.x - 1;
  __threadfence();
  __syncthreads();
  if (!last || threadIdx.x != 0) return;
  *sum = 0;
  for (unsigned i = 0; i < gridDim.x; ++i) *sum += parts[i];
  atomicExch(counter, 0u);
}

TEST_P(Scheduling, TheLastBlockSeesWhatAllOthersWrote) {
  constexpr int kBlocks = 7;
  const Buffer sum = runtime().allocate(sizeof(int)), parts = runtime().allocate(kBlocks * sizeof(int));
  const Buffer counter = upload(std::vector<unsigned>{0});
  for (int round = 0; round < 2; ++round) {
    launch(sum_blocks, {.grid = kBlocks, .block = 32}, stream(), sum.as<int>(), parts.as<int>(),
           counter.as<unsigned>());
    EXPECT_EQ(download<int>(sum)[0], 28);
  }
}

// Two stages: a tile is used while the next one arrives.
__global__ void pipelined_copy(float4* out, const float4* in, int tiles) {
  constexpr int kTile = 32;
  SHARED(float4[2][kTile], stages);
  const int i = static_cast<int>(threadIdx.x);
  cp_async_16(&stages[0][i], in + i);
  cp_async_commit();
  for (int t = 0; t < tiles; ++t) {
    if (t + 1 < tiles) cp_async_16(&stages[(t + 1) % 2][i], in + (t + 1) * kTile + i);
    cp_async_commit();
    cp_async_wait<1>();
    __syncthreads();
    out[t * kTile + i] = stages[t % 2][(i + 1) % kTile];
    __syncthreads();
  }
}

TEST_P(Scheduling, AsynchronousCopiesArriveAtTheWait) {
  constexpr int kTiles = 5;
  std::vector<float> x(kTiles * 32 * 4);
  std::iota(x.begin(), x.end(), 0.0f);
  const Buffer in = upload(x), out = runtime().allocate(x.size() * sizeof(float));
  launch(pipelined_copy, {.grid = 1, .block = 32}, stream(), out.as<float4>(), in.as<float4>(), kTiles);
  const std::vector<float> y = download<float>(out);
  for (std::size_t t = 0; t < kTiles; ++t) {
    for (std::size_t i = 0; i < 32; ++i) EXPECT_EQ(y[(t * 32 + i) * 4], x[(t * 32 + (i + 1) % 32) * 4]);
  }
}

__global__ void dynamic_memory(float* out) {
  DYNAMIC_SHARED(float, memory);
  SHARED(float, one);
  if (threadIdx.x == 0) one = 1.0f;
  memory[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncthreads();
  out[threadIdx.x] = memory[31 - threadIdx.x] + one;
}

TEST_P(Scheduling, DynamicSharedMemoryHasTheLaunchSize) {
  const Buffer out = runtime().allocate(32 * sizeof(float));
  launch(dynamic_memory, {.grid = 1, .block = 32, .shared = 32 * sizeof(float)}, stream(), out.as<float>());
  EXPECT_EQ(download<float>(out)[3], 29.0f);
}

__global__ void read_unwritten(float* out) {
  SHARED(float, never);
  out[0] = never;
}

TEST_P(Scheduling, SharedMemoryThatWasNeverWrittenIsNotANumber) {
  const Buffer out = runtime().allocate(sizeof(float));
  launch(read_unwritten, {.grid = 1, .block = 1}, stream(), out.as<float>());
  EXPECT_TRUE(std::isnan(download<float>(out)[0]));
}

__global__ void two_groups(int* out) {
  SHARED(int[2], sums);
  const int group = static_cast<int>(threadIdx.x) / 64;
  if (threadIdx.x % 64 == 0) sums[group] = group + 5;
  if (group == 0) {
    named_barrier(1, 64);
  } else {
    named_barrier(2, 64);
  }
  out[threadIdx.x] = sums[group];
}

TEST_P(Scheduling, NamedBarriersJoinPartsOfABlock) {
  const Buffer out = runtime().allocate(128 * sizeof(int));
  launch(two_groups, {.grid = 1, .block = 128}, stream(), out.as<int>());
  const std::vector<int> got = download<int>(out);
  for (std::size_t i = 0; i < 128; ++i) EXPECT_EQ(got[i], i < 64 ? 5 : 6);
}

template <int kThreads>
__global__ void returns_early(int n) {
  if (static_cast<int>(threadIdx.x) >= n) return;
  __syncthreads();
}

TEST_P(Scheduling, AReturnBeforeABarrierIsADeadlock) {
  launch(returns_early<64>, {.grid = 1, .block = 64}, stream(), 60);
  EXPECT_THAT(failure(),
              testing::ContainsRegex(
                  "returns_early<64> block \\(0,0,0\\): deadlock\n"
                  "  4 x has returned, first thread \\(60,0,0\\)\n"
                  "  60 x waits in __syncthreads at scheduler_test.cpp:[0-9]+, first thread \\(0,0,0\\), launched"));
}

__global__ void divergent_barriers() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_P(Scheduling, BarriersAtTwoLinesAreReported) {
  launch(divergent_barriers, {.grid = 1, .block = 64}, stream());
  EXPECT_THAT(failure(), testing::ContainsRegex(
                             "waits in __syncthreads at scheduler_test.cpp:[0-9]+ while others wait at line [0-9]+"));
}

__global__ void partial_shuffle(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(kAllLanes, 1, 0);
}

TEST_P(Scheduling, AShuffleThatNotAllLanesReachIsADeadlock) {
  const Buffer out = runtime().allocate(64);
  launch(partial_shuffle, {.grid = 1, .block = 32}, stream(), out.as<int>());
  EXPECT_THAT(failure(), HasSubstr("16 x waits in __shfl_sync"));
}

__global__ void different_operations(int* out) {
  out[threadIdx.x] =
      threadIdx.x % 2 == 0 ? __shfl_sync(kAllLanes, 1, 0) : static_cast<int>(__ballot_sync(kAllLanes, 1));
}

TEST_P(Scheduling, TwoOperationsInOneWarpAreReported) {
  const Buffer out = runtime().allocate(128);
  launch(different_operations, {.grid = 1, .block = 32}, stream(), out.as<int>());
  EXPECT_THAT(failure(),
              testing::ContainsRegex("waits in __(shfl|ballot)_sync .* while others wait in __(shfl|ballot)_sync"));
}

__global__ void wrong_mask(int* out) {
  out[threadIdx.x] = __shfl_sync(0xffff, 1, 0);
}

TEST_P(Scheduling, AMaskWithoutTheCallerIsReported) {
  const Buffer out = runtime().allocate(128);
  launch(wrong_mask, {.grid = 1, .block = 32}, stream(), out.as<int>());
  EXPECT_THAT(failure(), HasSubstr("mask lacks the caller"));
}

__global__ void outside_shuffle(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffff, 1, 20);
}

TEST_P(Scheduling, AShuffleFromOutsideTheMaskIsReported) {
  const Buffer out = runtime().allocate(128);
  launch(outside_shuffle, {.grid = 1, .block = 32}, stream(), out.as<int>());
  EXPECT_THAT(failure(), HasSubstr("shuffle from a lane outside the mask"));
}

__global__ void never_waits(const float4* in) {
  SHARED(float4, target);
  cp_async_16(&target, in);
  cp_async_commit();
}

TEST_P(Scheduling, CopiesThatNobodyWaitsForAreReported) {
  const Buffer in = runtime().allocate(16);
  launch(never_waits, {.grid = 1, .block = 1}, stream(), in.as<float4>());
  EXPECT_THAT(failure(), HasSubstr("returned before its asynchronous copies were waited for"));
}

__global__ void misaligned_copy(const float* in) {
  SHARED(float[8], target);
  cp_async_16(target, in);
  cp_async_commit();
  cp_async_wait<0>();
}

TEST_P(Scheduling, MisalignedAsynchronousCopiesAreReported) {
  const Buffer in = runtime().allocate(16);
  launch(misaligned_copy, {.grid = 1, .block = 1}, stream(), in.as<float>());
  EXPECT_THAT(failure(), HasSubstr("not aligned to 16"));
}

__global__ void large_static() {
  SHARED(char[kDefaultSharedBytes + 1], all);
  all[0] = 0;
}

TEST_P(Scheduling, TooManySharedVariablesAreReported) {
  launch(large_static, {.grid = 1, .block = 1}, stream());
  EXPECT_THAT(failure(), HasSubstr("more than 48 KiB of shared variables"));
}

TEST_P(Scheduling, AFailedLaunchLeavesTheDeviceUsable) {
  launch(returns_early<64>, {.grid = 4, .block = 64}, stream(), 1);
  EXPECT_NE(failure(), "no error");
  launch(returns_early<64>, {.grid = 4, .block = 64}, stream(), 64);
  EXPECT_EQ(failure(), "no error");
}

template <class F>
std::string thrown(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_P(Scheduling, BadShapesAreRefusedAtTheCall) {
  const auto with = [&](const LaunchShape& shape) {
    return thrown([&] { launch(dynamic_memory, shape, stream(), static_cast<float*>(nullptr)); });
  };
  EXPECT_THAT(with({.grid = 1, .block = 1025}), testing::StartsWith("dynamic_memory: block of (1025,1,1) threads"));
  EXPECT_THAT(with({.grid = 1, .block = 0}), HasSubstr("block of (0,1,1)"));
  EXPECT_THAT(with({.grid = 0, .block = 32}), HasSubstr("grid of (0,1,1)"));
  EXPECT_THAT(with({.grid = {1, 65536}, .block = 32}), HasSubstr("grid of (1,65536,1)"));
  EXPECT_THAT(with({.grid = 1, .block = 32, .shared = 48 * 1024 + 1}),
              HasSubstr("49153 bytes of dynamic shared memory, 49152 allowed"));
  EXPECT_THAT(thrown([] { allow_shared(dynamic_memory, 228 * 1024); }), HasSubstr("a device has up to 232448"));
}

__global__ void large_dynamic(char* out) {
  DYNAMIC_SHARED(char, memory);
  memory[100 * 1024 - 1] = 7;
  *out = memory[100 * 1024 - 1];
}

TEST_P(Scheduling, MoreSharedMemoryIsThereOnceAllowed) {
  const Buffer out = runtime().allocate(1);
  allow_shared(large_dynamic, 100 * 1024);
  launch(large_dynamic, {.grid = 2, .block = 1, .shared = 100 * 1024}, stream(), out.as<char>());
  EXPECT_EQ(download<char>(out)[0], 7);
}

}  // namespace
}  // namespace bankml::host
