// Attention of few rows, or of caches that the tensor cores don't take: the cells of a row are shared by many blocks
// (flash-decoding; Dao et al. 2023), each for all heads that read one KV head. Q is rounded to half beside a K of
// halves where the CPU backend does that; all sums are single precision, where it adds V in halves. A quantised K is
// widened and Q isn't quantised.
#include <cmath>

#include "attention_split.cuh"
#include "kernels.cuh"
#include "warp.cuh"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kDotLanes = 8;  // lanes that share a cell's dot products

// Dynamic shared memory, in floats: `shared_floats` of them.
template <int kGroup>
struct SharedMemory {
  float *q, *weight, *rescale, *sums;

  __device__ SharedMemory(float* memory, int head_dim_k)
      : q(memory), weight(q + kGroup * head_dim_k), rescale(weight + kGroup * kCellsPerBlock), sums(rescale + kGroup) {}
};
template <int kGroup>
std::size_t shared_floats(int head_dim_k) {
  return static_cast<std::size_t>(kGroup * (head_dim_k + kCellsPerBlock + 1) + kThreads * kChunk);
}

template <DType kType>
__device__ inline void load_cell_chunk(DType type, const std::byte* cell, int chunk, float (&to)[kChunk]) {
  if constexpr (kType != DType::bf16) {
    load_chunk<kType>(cell, chunk, to);
  } else if (type == DType::f16) {  // known at run time only
    load_chunk<DType::f16>(cell, chunk, to);
  } else if (type == DType::f32) {
    load_chunk<DType::f32>(cell, chunk, to);
  } else {
    load_chunk<DType::q8_0>(cell, chunk, to);
  }
}

// Scores of a block of cells with kGroup heads, eight lanes a cell.
template <int kGroup, DType kType>
__device__ inline void score_cells(const SharedMemory<kGroup>& shared, const AttentionLaunch& args, const KvView& kv,
                                   const VisibleCells& cells, std::int64_t first_cell, const std::byte* k) {
  const int lane = static_cast<int>(threadIdx.x) % kDotLanes;
  for (int c = static_cast<int>(threadIdx.x) / kDotLanes; c < kCellsPerBlock; c += kThreads / kDotLanes) {
    const bool visible = cells.sees(first_cell + c);
    float dot[kGroup] = {};
    if (visible) {
      const std::byte* cell = k + c * cell_bytes(kv.type_k, kv.head_dim_k);
      for (int chunk = lane; chunk < kv.head_dim_k / kChunk; chunk += kDotLanes) {
        float x[kChunk];
        load_cell_chunk<kType>(kv.type_k, cell, chunk, x);
#pragma unroll
        for (int h = 0; h < kGroup; ++h) {
          const float* q = shared.q + h * kv.head_dim_k + chunk * kChunk;
#pragma unroll
          for (int i = 0; i < kChunk; ++i) dot[h] = fmaf(q[i], x[i], dot[h]);
        }
      }
    }
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
      const float score = warp_sum<kDotLanes>(dot[h]);
      if (lane == 0)
        shared.weight[h * kCellsPerBlock + c] = visible ? soft_cap(score * args.scale, args.softcap) : kNothing;
    }
  }
}

// Running maximum and sum of a head, the same in all lanes of the warp that keeps them.
struct Softmax {
  float max = kNothing, sum = 0;

  // Turns a block's scores into weights; the factor for what was added before.
  __device__ float add(float* score, int lane) {
    const float a = score[lane], b = score[lane + 32];
    const float grown = fmaxf(max, warp_max(fmaxf(a, b)));
    const float reference = grown == kNothing ? 0.0f : grown;
    const float rescale = __expf(max - reference), p = __expf(a - reference), q = __expf(b - reference);
    score[lane] = p;
    score[lane + 32] = q;
    sum = sum * rescale + warp_sum(p + q);
    max = grown;
    return rescale;
  }
};

// Three blocks of a multiprocessor: left to itself the assembler goes for more, and spills on sm_90a.
template <int kGroup, DType kK, DType kV>
__global__ void __launch_bounds__(kThreads, 3) attend_split(AttentionLaunch args, KvView kv) {
  DYNAMIC_SHARED(float, memory);
  const SharedMemory<kGroup> shared(memory, kv.head_dim_k);
  const int group = args.heads / kv.kv_heads, parts = (group + kGroup - 1) / kGroup;
  const int split = static_cast<int>(blockIdx.x), kv_head = static_cast<int>(blockIdx.y) / parts;
  const int first_in_group = static_cast<int>(blockIdx.y) % parts * kGroup,
            first_head = kv_head * group + first_in_group;
  const int heads = group - first_in_group < kGroup ? group - first_in_group : kGroup;
  const std::int64_t row = blockIdx.z;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;

  const VisibleCells cells(kv, row, args.window);
  const CellBlocks range(cells.begin, cells.end, split, args.max_splits);
  if (range.first >= range.last) {
    if (thread < heads) {
      float* to = args.partial_max_sum + 2 * partial_index(args, row, first_head + thread, split);
      to[0] = kNothing;
      to[1] = 0;
    }
    return;
  }
  for (int i = thread; i < kGroup * kv.head_dim_k; i += kThreads) {
    const int h = i / kv.head_dim_k;
    const float q = h < heads ? args.q[(row * args.heads + first_head) * kv.head_dim_k + i] : 0.0f;
    shared.q[i] = args.half_q ? to_float(to_half(q)) : q;
  }
  __syncthreads();

  constexpr int kHeadsOfWarp = (kGroup + kWarps - 1) / kWarps;
  Softmax softmax[kHeadsOfWarp];
  const int chunks = kv.head_dim_v / kChunk, cell_groups = kThreads / chunks;
  const int chunk = thread % chunks, cell_group = thread / chunks;
  float acc[kGroup][kChunk] = {};
  for (std::int64_t b = range.first; b < range.last; ++b) {
    std::byte* block = kv.blocks[kv.sequence[row] * kv.blocks_stride + b];
    score_cells<kGroup, kK>(shared, args, kv, cells, b * kCellsPerBlock, k_cells(kv, block, kv_head));
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kHeadsOfWarp; ++i) {
      const int h = warp + i * kWarps;
      if (h >= kGroup) break;
      const float rescale = softmax[i].add(shared.weight + h * kCellsPerBlock, lane);
      if (lane == 0) shared.rescale[h] = rescale;
    }
    __syncthreads();
#pragma unroll
    for (int h = 0; h < kGroup; ++h) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) acc[h][i] *= shared.rescale[h];
    }
    const std::byte* v = v_cells(kv, block, kv_head);
    for (int c = cell_group; c < kCellsPerBlock && cell_group < cell_groups; c += cell_groups) {
      if (!cells.sees(b * kCellsPerBlock + c)) continue;  // what lies there need not be a number
      float x[kChunk];
      load_cell_chunk<kV>(kv.type_v, v + c * cell_bytes(kv.type_v, kv.head_dim_v), chunk, x);
#pragma unroll
      for (int h = 0; h < kGroup; ++h) {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) acc[h][i] = fmaf(shared.weight[h * kCellsPerBlock + c], x[i], acc[h][i]);
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < kHeadsOfWarp; ++i) {
    const int h = warp + i * kWarps;
    if (h >= heads || lane != 0) continue;
    float* to = args.partial_max_sum + 2 * partial_index(args, row, first_head + h, split);
    to[0] = softmax[i].max;
    to[1] = softmax[i].sum;
  }
#pragma unroll
  for (int h = 0; h < kGroup; ++h) {
    if (cell_group < cell_groups) {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) shared.sums[cell_group * kv.head_dim_v + chunk * kChunk + i] = acc[h][i];
    }
    __syncthreads();
    for (int d = thread; d < kv.head_dim_v && h < heads; d += kThreads) {
      float sum = 0;
      for (int i = 0; i < cell_groups; ++i) sum += shared.sums[i * kv.head_dim_v + d];
      args.partial[partial_index(args, row, first_head + h, split) * kv.head_dim_v + d] = sum;
    }
    __syncthreads();
  }
}

template <int kGroup, DType kK, DType kV>
void launch_split(Stream& stream, const AttentionLaunch& args, const KvView& kv) {
  const int parts = (args.heads / kv.kv_heads + kGroup - 1) / kGroup;
  launch(attend_split<kGroup, kK, kV>,
         {.grid = {args.max_splits, kv.kv_heads * parts, args.rows},
          .block = kThreads,
          .shared = shared_floats<kGroup>(kv.head_dim_k) * sizeof(float)},
         stream, args, kv);
}

template <DType kK, DType kV>
void launch_group(Stream& stream, const AttentionLaunch& args, const KvView& kv) {
  const int group = args.heads / kv.kv_heads;
  if (group == 1) return launch_split<1, kK, kV>(stream, args, kv);
  if (group <= 4) return launch_split<4, kK, kV>(stream, args, kv);
  launch_split<8, kK, kV>(stream, args, kv);
}

}  // namespace

void attention_split(Stream& stream, const AttentionLaunch& args, const KvView& kv) {
  const auto both = [&](DType type) { return kv.type_k == type && kv.type_v == type; };
  if (both(DType::f16)) return launch_group<DType::f16, DType::f16>(stream, args, kv);
  if (both(DType::q8_0)) return launch_group<DType::q8_0, DType::q8_0>(stream, args, kv);
  // Types that are rare or differ are looked at cell by cell; bf16, which no cache has, stands for that.
  launch_group<DType::bf16, DType::bf16>(stream, args, kv);
}

}  // namespace KERNEL_NAMESPACE
