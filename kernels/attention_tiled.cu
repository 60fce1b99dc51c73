// Attention of many rows on f16 tensor cores: 64 rows of a head against tiles of cells that arrive while the last one
// is multiplied (FlashAttention-2; Dao 2023).
//
// Q, K, V and the weights are rounded to half, as in the peer's tensor-core kernel; accumulators are single
// precision, also those of V, where the peer's are halves.
#include <cmath>

#include "attention_split.cuh"
#include "kernels.cuh"
#include "ptx.cuh"
#include "warp.cuh"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
constexpr int kRowTile = 16 * kWarps;

template <int kDim>
struct Tile {
  // Of a wide head, fewer cells at a time: less shared memory than the 99 KiB that every device has.
  static constexpr int cells = kDim > 128 ? 32 : 64;
  static constexpr int pitch = kDim + 8;  // 16 bytes more than a row: eight rows are in different banks
  struct Stage {
    half k[cells][pitch];
    half v[cells][pitch];
  };
  struct Shared {
    half q[kRowTile][pitch];
    Stage stage[2];
  };
};

template <int kDim>
__device__ inline void load_q(typename Tile<kDim>::Shared& shared, const AttentionLaunch& args, int first_row,
                              int head) {
  for (int i = threadIdx.x; i < kRowTile * kDim; i += kThreads) {
    const int row = i / kDim, d = i % kDim;
    const bool inside = first_row + row < args.rows;
    const float q = inside ? args.q[(std::int64_t{first_row + row} * args.heads + head) * kDim + d] : 0.0f;
    shared.q[row][d] = to_half(q);
  }
}

// Cells first to first + cells - 1 of one head on their way to shared memory; zeros from `end` on, where memory may
// hold anything.
template <int kDim, DType kType>
__device__ inline void load_cells(half (*to)[Tile<kDim>::pitch], const std::byte* from, std::int64_t first,
                                  std::int64_t end) {
  constexpr int kChunks = kDim / kChunk;
  for (int i = threadIdx.x; i < Tile<kDim>::cells * kChunks; i += kThreads) {
    const int cell = i / kChunks, chunk = i % kChunks;
    const bool inside = first + cell < end;
    const std::byte* at = from + (first + cell) % kCellsPerBlock * cell_bytes(kType, kDim);
    if constexpr (kType == DType::f16) {
      cp_async_16(&to[cell][chunk * kChunk], inside ? at + chunk * 16 : from, inside ? 16 : 0);
    } else {
      float x[kChunk] = {};
      if (inside) load_chunk<kType>(at, chunk, x);
      *reinterpret_cast<uint4*>(&to[cell][chunk * kChunk]) =
          make_uint4(float2_to_half2(x[0], x[1]), float2_to_half2(x[2], x[3]), float2_to_half2(x[4], x[5]),
                     float2_to_half2(x[6], x[7]));
    }
  }
}

// What a warp keeps of its 16 rows: each lane of rows lane / 4 (index 0) and lane / 4 + 8 (index 1).
template <int kDim>
struct WarpRows {
  float max[2] = {kNothing, kNothing};
  float sum[2] = {};  // of this lane's cells only
  float acc[kDim / 8][4] = {};
};

// Scores of 16 rows with a tile of cells: C fragments of eight cells each.
template <int kDim>
__device__ inline void score_tile(const typename Tile<kDim>::Shared& shared, const typename Tile<kDim>::Stage& stage,
                                  int warp, int lane, float (&score)[Tile<kDim>::cells / 8][4]) {
#pragma unroll
  for (int k = 0; k < kDim; k += 16) {
    const Matrices4 q = ldmatrix_x4(&shared.q[warp * 16 + lane % 16][k + lane / 16 * 8]);
    const MmaA a{{q.x[0], q.x[1], q.x[2], q.x[3]}};
#pragma unroll
    for (int j = 0; j < Tile<kDim>::cells / 8; j += 2) {
      const Matrices4 m = ldmatrix_x4(&stage.k[j * 8 + lane % 8 + lane / 16 * 8][k + lane / 8 % 2 * 8]);
#pragma unroll
      for (int half_tile = 0; half_tile < 2; ++half_tile) {
        float(&s)[4] = score[j + half_tile];
        const MmaFloat c =
            mma_m16n8k16_f16(a, MmaB{{m.x[2 * half_tile], m.x[2 * half_tile + 1]}}, MmaFloat{{s[0], s[1], s[2], s[3]}});
#pragma unroll
        for (int i = 0; i < 4; ++i) s[i] = c.x[i];
      }
    }
  }
}

// Scores become weights; what was added before is scaled to the new maximum.
template <int kDim>
__device__ inline void soft_max_tile(WarpRows<kDim>& rows, float (&score)[Tile<kDim>::cells / 8][4]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float most = rows.max[r];
#pragma unroll
    for (int j = 0; j < Tile<kDim>::cells / 8; ++j) most = fmaxf(most, fmaxf(score[j][2 * r], score[j][2 * r + 1]));
    most = warp_max<4>(most);
    const float reference = most == kNothing ? 0.0f : most;
    const float rescale = __expf(rows.max[r] - reference);
    rows.max[r] = most;
    rows.sum[r] *= rescale;
#pragma unroll
    for (int j = 0; j < Tile<kDim>::cells / 8; ++j) {
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) {
        score[j][i] = __expf(score[j][i] - reference);
        rows.sum[r] += score[j][i];
      }
    }
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      rows.acc[j][2 * r] *= rescale;
      rows.acc[j][2 * r + 1] *= rescale;
    }
  }
}

template <int kDim>
__device__ inline void add_values(WarpRows<kDim>& rows, const typename Tile<kDim>::Stage& stage, int lane,
                                  const float (&weight)[Tile<kDim>::cells / 8][4]) {
#pragma unroll
  for (int c = 0; c < Tile<kDim>::cells / 16; ++c) {
    const float(&left)[4] = weight[2 * c];
    const float(&right)[4] = weight[2 * c + 1];
    const MmaA a{{float2_to_half2(left[0], left[1]), float2_to_half2(left[2], left[3]),
                  float2_to_half2(right[0], right[1]), float2_to_half2(right[2], right[3])}};
#pragma unroll
    for (int j = 0; j < kDim / 8; j += 2) {
      const Matrices4 m = ldmatrix_x4_trans(&stage.v[c * 16 + lane % 16][j * 8 + lane / 16 * 8]);
#pragma unroll
      for (int half_tile = 0; half_tile < 2; ++half_tile) {
        float(&acc)[4] = rows.acc[j + half_tile];
        const MmaFloat d = mma_m16n8k16_f16(a, MmaB{{m.x[2 * half_tile], m.x[2 * half_tile + 1]}},
                                            MmaFloat{{acc[0], acc[1], acc[2], acc[3]}});
#pragma unroll
        for (int i = 0; i < 4; ++i) acc[i] = d.x[i];
      }
    }
  }
}

// Rows of a tile that are of one sequence, and the cells that any of them sees.
struct Segment {
  int begin, end;
  std::int64_t begin_cell, end_cell;

  __device__ Segment(const KvView& kv, int window, int first, int rows) : begin(first), end(first) {
    begin_cell = kv.cells[kv.sequence[first]];
    end_cell = 0;
    while (end < rows && kv.sequence[end] == kv.sequence[begin]) {
      const VisibleCells cells(kv, end, window);
      begin_cell = cells.begin < begin_cell ? cells.begin : begin_cell;
      end_cell = cells.end > end_cell ? cells.end : end_cell;
      ++end;
    }
  }
};

template <int kDim, DType kType>
__global__ void __launch_bounds__(kThreads) attend_tiled(AttentionLaunch args, KvView kv) {
  using T = Tile<kDim>;
  DYNAMIC_SHARED(typename T::Shared, memory);
  typename T::Shared& shared = *memory;
  const int first_row = static_cast<int>(blockIdx.x) * kRowTile, head = static_cast<int>(blockIdx.y);
  const int split = static_cast<int>(blockIdx.z), kv_head = head / (args.heads / kv.kv_heads);
  const int last_row = first_row + kRowTile < args.rows ? first_row + kRowTile : args.rows;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  // A lane of rows beyond the end works on the last row and writes nothing.
  const int row_a = first_row + warp * 16 + lane / 4, row_b = row_a + 8;
  const VisibleCells cells[2] = {VisibleCells(kv, row_a < last_row ? row_a : last_row - 1, args.window),
                                 VisibleCells(kv, row_b < last_row ? row_b : last_row - 1, args.window)};
  load_q<kDim>(shared, args, first_row, head);
  WarpRows<kDim> rows;

  for (int begin = first_row; begin < last_row;) {
    const Segment segment(kv, args.window, begin, last_row);
    begin = segment.end;
    const CellBlocks range(segment.begin_cell, segment.end_cell, split, args.max_splits);
    const std::int64_t first_tile = range.first * (kCellsPerBlock / T::cells),
                       last_tile = range.last * (kCellsPerBlock / T::cells);
    if (first_tile >= last_tile) continue;
    const std::int32_t sequence = kv.sequence[segment.begin];
    const std::int64_t end_cell = kv.cells[sequence];
    const bool inside[2] = {row_a >= segment.begin && row_a < segment.end,
                            row_b >= segment.begin && row_b < segment.end};
    const auto load_tile = [&](std::int64_t tile) {
      std::byte* block = kv.blocks[sequence * kv.blocks_stride + tile * T::cells / kCellsPerBlock];
      typename T::Stage& stage = shared.stage[tile % 2];
      load_cells<kDim, kType>(stage.k, k_cells(kv, block, kv_head), tile * T::cells, end_cell);
      load_cells<kDim, kType>(stage.v, v_cells(kv, block, kv_head), tile * T::cells, end_cell);
      cp_async_commit();
    };
    __syncthreads();  // the last segment's tiles have been read, and Q is there
    load_tile(first_tile);
    for (std::int64_t tile = first_tile; tile < last_tile; ++tile) {
      if (tile + 1 < last_tile) {
        load_tile(tile + 1);
        cp_async_wait<1>();
      } else {
        cp_async_wait<0>();
      }
      __syncthreads();
      const typename T::Stage& stage = shared.stage[tile % 2];
      float score[T::cells / 8][4] = {};
      score_tile<kDim>(shared, stage, warp, lane, score);
#pragma unroll
      for (int j = 0; j < T::cells / 8; ++j) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const std::int64_t cell = tile * T::cells + j * 8 + lane % 4 * 2 + i % 2;
          score[j][i] =
              inside[i / 2] && cells[i / 2].sees(cell) ? soft_cap(score[j][i] * args.scale, args.softcap) : kNothing;
        }
      }
      soft_max_tile<kDim>(rows, score);
      add_values<kDim>(rows, stage, lane, score);
      __syncthreads();
    }
  }

#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float sum = warp_sum<4>(rows.sum[r]);
    const int row = r == 0 ? row_a : row_b;
    if (row >= last_row) continue;
    const std::int64_t index = partial_index(args, row, head, split);
    if (lane % 4 == 0) {
      args.partial_max_sum[2 * index] = rows.max[r];
      args.partial_max_sum[2 * index + 1] = sum;
    }
#pragma unroll
    for (int j = 0; j < kDim / 8; ++j) {
      float2* to = reinterpret_cast<float2*>(args.partial + index * kDim + j * 8 + lane % 4 * 2);
      *to = make_float2(rows.acc[j][2 * r], rows.acc[j][2 * r + 1]);
    }
  }
}

template <int kDim, DType kType>
void launch_tiled(Stream& stream, const AttentionLaunch& args, const KvView& kv) {
  constexpr std::size_t kShared = sizeof(typename Tile<kDim>::Shared);
  const auto kernel = attend_tiled<kDim, kType>;
  if constexpr (kShared > kDefaultSharedBytes) allow_shared(kernel, kShared);
  launch(kernel,
         {.grid = {(args.rows + kRowTile - 1) / kRowTile, args.heads, args.max_splits},
          .block = kThreads,
          .shared = kShared},
         stream, args, kv);
}

template <DType kType>
bool launch_type(Stream& stream, const AttentionLaunch& args, const KvView& kv) {
  switch (kv.head_dim_k) {
    case 64:
      launch_tiled<64, kType>(stream, args, kv);
      return true;
    case 80:
      launch_tiled<80, kType>(stream, args, kv);
      return true;
    case 96:
      launch_tiled<96, kType>(stream, args, kv);
      return true;
    case 128:
      launch_tiled<128, kType>(stream, args, kv);
      return true;
    case 256:
      launch_tiled<256, kType>(stream, args, kv);
      return true;
    default:
      return false;
  }
}

}  // namespace

bool attention_tiled(Stream& stream, const AttentionLaunch& args, const KvView& kv) {
  if (kv.type_k != kv.type_v || kv.head_dim_k != kv.head_dim_v) return false;
  if (kv.type_k == DType::f16) return launch_type<DType::f16>(stream, args, kv);
  if (kv.type_k == DType::q8_0) return launch_type<DType::q8_0>(stream, args, kv);
  return false;  // a cache of floats was asked for because of its precision
}

}  // namespace KERNEL_NAMESPACE
