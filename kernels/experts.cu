// Routing of rows to experts, pairs in the order of experts, and the sum of what the experts give. Their mat-muls are
// in matmul_vec.cu and matmul_tiles.cu.
#include "device.cuh"
#include "device/cuda/launchers.hpp"
#include "warp.cuh"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kMaxExperts = 1024;  // of a GGUF model
constexpr int kPerLane = kMaxExperts / 32;

struct Best {
  float value;
  int index;
};

// The largest value of a warp, of equal ones that of the smallest index: the same in all lanes.
__device__ inline Best best_of_warp(Best mine) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float value = __shfl_xor_sync(kAllLanes, mine.value, lanes);
    const int index = __shfl_xor_sync(kAllLanes, mine.index, lanes);
    if (value > mine.value || (value == mine.value && index < mine.index)) mine = {value, index};
  }
  return mine;
}

// A warp routes a row; lane l looks after experts l, l + 32, ... The softmax changes no order, so experts are chosen by
// their scores.
__global__ void __launch_bounds__(kThreads) route_rows(RouteArgs args) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t row = std::int64_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  if (row >= args.rows) return;
  const float* score = args.scores + row * args.experts;
  float max = -INFINITY;
  for (int e = lane; e < args.experts; e += 32) max = fmaxf(max, score[e]);
  max = warp_max(max);
  double sum = 0;
  if (!args.softmax_of_chosen) {
    for (int e = lane; e < args.experts; e += 32) sum += static_cast<double>(expf(score[e] - max));
    sum = warp_sum(sum);
  }
  std::uint32_t taken = 0;  // a bit for each expert of this lane
  float weight = 0;         // of the lane-th choice
  for (int i = 0; i < args.used; ++i) {
    Best best{-INFINITY, kMaxExperts};
    for (int k = 0; k < kPerLane && lane + 32 * k < args.experts; ++k) {
      const int e = lane + 32 * k;
      if (!(taken >> k & 1) && (score[e] > best.value || best.index == kMaxExperts)) best = {score[e], e};
    }
    best = best_of_warp(best);
    if (best.index % 32 == lane) taken |= 1u << (best.index / 32);
    const float exponential = expf(best.value - max);
    if (args.softmax_of_chosen) sum += static_cast<double>(exponential);
    if (lane == 0) args.expert[row * args.used + i] = best.index;
    if (lane == i) weight = exponential;
  }
  weight *= static_cast<float>(1.0 / sum);
  if (args.normalize) {
    constexpr float kSmallestHalf = 0x1p-14f;  // of the normal ones: a sum below it counts as this
    const float chosen = static_cast<float>(warp_sum(lane < args.used ? static_cast<double>(weight) : 0.0));
    weight /= fmaxf(chosen, kSmallestHalf);
  }
  if (args.scale != 1.0f) weight *= args.scale;
  if (lane < args.used) args.weight[row * args.used + lane] = weight;
}

constexpr int kGroupThreads = 1024;
constexpr int kGroupWarps = kGroupThreads / 32;

// One block, a warp an expert: its pairs are counted, then written behind those of the experts before it.
__global__ void __launch_bounds__(kGroupThreads) sort_pairs(GroupArgs args) {
  SHARED(int[kMaxExperts], count);
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  for (int e = warp; e < args.experts; e += kGroupWarps) {
    int n = 0;
    for (int p = lane; p < args.pairs; p += 32) n += args.expert[p] == e;
    n = warp_sum(n);
    if (lane == 0) count[e] = n;
  }
  __syncthreads();
  for (int e = warp; e < args.experts; e += kGroupWarps) {
    int first = 0, tile = 0;
    for (int i = lane; i < e; i += 32) {
      first += count[i];
      tile += (count[i] + kGroupTile - 1) / kGroupTile;
    }
    first = warp_sum(first);
    tile = warp_sum(tile);
    const int n = count[e], tiles = (n + kGroupTile - 1) / kGroupTile;
    for (int t = lane; t < tiles; t += 32) {
      const int left = n - t * kGroupTile;
      args.tile[tile + t] = {e, first + t * kGroupTile, left < kGroupTile ? left : kGroupTile};
    }
    for (int base = 0; base < args.pairs; base += 32) {
      const bool mine = base + lane < args.pairs && args.expert[base + lane] == e;
      const unsigned lanes = __ballot_sync(kAllLanes, mine);
      if (mine) args.sorted[first + __popc(lanes & ((1u << lane) - 1))] = base + lane;
      first += __popc(lanes);
    }
    if (e + 1 < args.experts) continue;
    for (int t = tile + tiles + lane; t < args.tiles; t += 32) args.tile[t] = {0, 0, 0};
  }
}

__global__ void __launch_bounds__(kThreads) sum_pairs(ExpertSumArgs args) {
  const std::int64_t row = blockIdx.y;
  const int column = static_cast<int>(blockIdx.x * kThreads + threadIdx.x);
  if (column >= args.dim) return;
  const float* branch = args.branch + row * args.used * args.dim + column;
  const float* weight = args.weight + row * args.used;
  float sum = branch[0] * weight[0];
  for (int i = 1; i < args.used; ++i) sum += branch[std::int64_t{i} * args.dim] * weight[i];
  const std::int64_t at = row * args.dim + column;
  if (args.shared) sum += args.shared[at];
  if (args.scale != 1.0f) sum *= args.scale;
  if (args.residual) sum += args.residual[at];
  args.out[at] = sum;
}

}  // namespace

void route(Stream& stream, const RouteArgs& args) {
  launch(route_rows, {.grid = (args.rows + kWarps - 1) / kWarps, .block = kThreads}, stream, args);
}

void group_pairs(Stream& stream, const GroupArgs& args) {
  launch(sort_pairs, {.grid = 1, .block = kGroupThreads}, stream, args);
}

void sum_experts(Stream& stream, const ExpertSumArgs& args) {
  launch(sum_pairs, {.grid = {(args.dim + kThreads - 1) / kThreads, args.rows}, .block = kThreads}, stream, args);
}

}  // namespace KERNEL_NAMESPACE
