// Quantised weights and more rows than mat-vec takes: int8 tensor cores, exact within a unit of 32 elements, one
// single-precision accumulator an output. Integers are those of the CPU backend; unlike the peer's kernel for many rows
// (docs/arithmetic.md, 5.2), nothing is rounded to half.
#include "kernels.cuh"
#include "matmul_output.cuh"
#include "ptx.cuh"
#include "weight_unit.cuh"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / 32;
constexpr int kWeightTile = 128;  // weight rows of a block
constexpr int kUnits = 2;         // of a step: each thread unpacks one
// Rows of a tile in shared memory: 16 bytes more than its elements, so that the eight rows that a warp reads at once
// are in different banks.
constexpr int kPitch = kUnits * kUnit + 16;
static_assert(kThreads == kWeightTile * kUnits);

template <class Block>
inline constexpr bool kMinimum = UnitLayout<Block>::minimum;
template <class Block>
inline constexpr int kHalves = UnitLayout<Block>::halves;

// What a step multiplies. Scales are those of the parts of a unit (kHalves); the sums of activations stand for what a
// minimum is multiplied by.
template <class Block, int kRows>
struct alignas(16) Stage {
  static constexpr int halves = kHalves<Block>;
  static constexpr int minima = kMinimum<Block> ? halves : 0;
  std::int8_t w[kWeightTile][kPitch];
  std::int8_t a[kRows][kPitch];
  float w_scale[kUnits][halves][kWeightTile];
  float a_scale[kUnits][kRows];
  float w_min[kUnits][minima ? minima : 1][minima ? kWeightTile : 1];
  float a_sum[kUnits][minima ? minima : 1][minima ? kRows : 1];
};

// The rows of activations that a block takes, and where their outputs go: neighbours, or pairs of one expert.
template <int kRows, bool kGrouped>
struct RowTile {
  int first = 0, count = 0;
  std::int64_t first_weight_row = 0;  // of the expert, counted over all of them
  const std::int32_t* pair = nullptr;
  int divisor = 1;

  __device__ explicit RowTile(const MatmulJob& job, const MatmulPart& part) {
    if constexpr (kGrouped) {
      const ExpertTile tile = job.experts.tile[blockIdx.y];
      count = tile.count;
      first_weight_row = tile.expert * part.weight.rows;
      pair = job.experts.sorted + tile.first;
      divisor = job.experts.divisor;
    } else {
      first = static_cast<int>(blockIdx.y) * kRows;
      count = job.rows - first;
    }
  }
  __device__ std::int64_t source(int row) const {
    if constexpr (kGrouped) return pair[row] / divisor;
    return first + row;
  }
  __device__ std::int64_t output(int row) const {
    if constexpr (kGrouped) return pair[row];
    return first + row;
  }
};

// The unit of the weight that this thread unpacks, and its row of activations' scales, both of one step.
template <class Block, int kRows, bool kGrouped>
class Loader {
 public:
  using Rows = RowTile<kRows, kGrouped>;

  __device__ Loader(const WeightPlanes& weight, const ActivationPlanes& a, const Rows& rows, std::int64_t first_weight)
      : weight_(weight), a_(a), rows_(rows), units_(weight.cols / kUnit) {
    const std::int64_t row = first_weight + threadIdx.x / kUnits;
    weight_unit_ = (rows.first_weight_row + (row < weight.rows ? row : first_weight)) * units_;
  }

  __device__ const std::int8_t* integers() const { return UnitLayout<Block>::super ? a_.q8k : a_.q8; }
  __device__ int steps() const { return (units_ + kUnits - 1) / kUnits; }

  // From memory to registers, and the activations on their way to `stage`.
  __device__ void load(Stage<Block, kRows>& stage, int step) {
    const int unit = step * kUnits + static_cast<int>(threadIdx.x) % kUnits;
    unit_ = {};  // beyond the end: zeros times zero
    if (unit < units_) load_unit(weight_, weight_unit_ + unit, unit_);
    for (int chunk = threadIdx.x; chunk < kRows * kUnits * 2; chunk += kThreads) {
      const int row = chunk / (kUnits * 2), part = chunk % (kUnits * 2);
      const int column = step * kUnits * kUnit + part * 16;
      // Rows and columns beyond the ends are zeros.
      const bool inside = row < rows_.count && column < a_.dim;
      const std::int8_t* from = integers() + (inside ? rows_.source(row) * a_.dim + column : 0);
      cp_async_16(&stage.a[row][part * 16], from, inside ? 16 : 0);
    }
    cp_async_commit();
    for (int i = threadIdx.x; i < kRows * kUnits; i += kThreads)
      load_scales(stage, i / kUnits, i % kUnits, step * kUnits + i % kUnits);
  }

  // From registers to shared memory.
  __device__ void store(Stage<Block, kRows>& stage) const {
    const int row = static_cast<int>(threadIdx.x) / kUnits, unit = static_cast<int>(threadIdx.x) % kUnits;
    int4* to = reinterpret_cast<int4*>(&stage.w[row][unit * kUnit]);
    to[0] = make_int4(unit_.q[0], unit_.q[1], unit_.q[2], unit_.q[3]);
    to[1] = make_int4(unit_.q[4], unit_.q[5], unit_.q[6], unit_.q[7]);
    using Layout = UnitLayout<Block>;
    for (int h = 0; h < Layout::halves; ++h) {
      float scale = unit_.d, minimum = unit_.m;
      if constexpr (Layout::super) scale *= static_cast<float>(unit_.scale[h]);
      if constexpr (Layout::super && kMinimum<Block>) minimum *= -static_cast<float>(unit_.min[h]);
      stage.w_scale[unit][h][row] = scale;
      if constexpr (kMinimum<Block>) stage.w_min[unit][h][row] = minimum;
    }
  }

 private:
  __device__ void load_scales(Stage<Block, kRows>& stage, int row, int unit, int index) const {
    const bool inside = row < rows_.count && index < units_;
    const std::int64_t at = inside ? rows_.source(row) * units_ + index : 0;
    using Layout = UnitLayout<Block>;
    if constexpr (!Layout::super) {
      stage.a_scale[unit][row] = inside ? a_.q8_d[at] : 0.0f;
      if constexpr (kMinimum<Block>) stage.a_sum[unit][0][row] = inside ? a_.q8_s[at] : 0.0f;
    } else {
      const float d = inside ? a_.q8k_d[at / Layout::units] : 0.0f;
      stage.a_scale[unit][row] = d;
      if constexpr (kMinimum<Block>) {
        const int first = a_.q8k_sums[2 * at], second = a_.q8k_sums[2 * at + 1];
        stage.a_sum[unit][0][row] = d * static_cast<float>(Layout::halves == 2 ? first : first + second);
        if constexpr (Layout::halves == 2) stage.a_sum[unit][1][row] = d * static_cast<float>(second);
      }
    }
  }

  WeightPlanes weight_;
  ActivationPlanes a_;
  Rows rows_;
  int units_;
  std::int64_t weight_unit_;
  WeightUnit<Block> unit_;
};

// How the warps share a tile.
template <int kRows>
struct WarpTile {
  static constexpr int across = kRows >= 64 ? 2 : 1;  // warps beside each other
  static constexpr int rows = kRows / across;
  static constexpr int weights = kWeightTile / (kWarps / across);
  static constexpr int row_tiles = rows / 8, weight_tiles = weights / 16;
};

template <int kRows>
struct Accumulators {
  float x[WarpTile<kRows>::weight_tiles][WarpTile<kRows>::row_tiles][4] = {};
};

// Adds one part of a unit (half of it, or all): products of integers, times their scales.
template <class Block, int kRows>
__device__ inline void multiply_unit(const Stage<Block, kRows>& stage, int unit, int weight0, int row0,
                                     Accumulators<kRows>& sums) {
  using Tile = WarpTile<kRows>;
  const int lane = static_cast<int>(threadIdx.x) % 32, group = lane / 4, in_group = lane % 4;
  constexpr int kParts = kHalves<Block>;
  MmaA a[Tile::weight_tiles];
#pragma unroll
  for (int i = 0; i < Tile::weight_tiles; ++i) {
    const int row = weight0 + i * 16 + group, column = unit * kUnit + in_group * 4;
    a[i].x[0] = *reinterpret_cast<const std::uint32_t*>(&stage.w[row][column]);
    a[i].x[1] = *reinterpret_cast<const std::uint32_t*>(&stage.w[row + 8][column]);
    a[i].x[2] = *reinterpret_cast<const std::uint32_t*>(&stage.w[row][column + 16]);
    a[i].x[3] = *reinterpret_cast<const std::uint32_t*>(&stage.w[row + 8][column + 16]);
  }
#pragma unroll
  for (int j = 0; j < Tile::row_tiles; ++j) {
    const std::int8_t* from = &stage.a[row0 + j * 8 + group][unit * kUnit + in_group * 4];
    MmaB b;
    b.x[0] = *reinterpret_cast<const std::uint32_t*>(from);
    b.x[1] = *reinterpret_cast<const std::uint32_t*>(from + 16);
    const int column = row0 + j * 8 + 2 * in_group;
    const float a_scale[2] = {stage.a_scale[unit][column], stage.a_scale[unit][column + 1]};
#pragma unroll
    for (int i = 0; i < Tile::weight_tiles; ++i) {
#pragma unroll
      for (int h = 0; h < kParts; ++h) {
        MmaA part = a[i];
        if constexpr (kParts == 2) part.x[h ? 0 : 2] = part.x[h ? 1 : 3] = 0;  // the other half of the unit
        const MmaInt c = mma_m16n8k32_s8(part, b, MmaInt{});
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          const int row = weight0 + i * 16 + group + v / 2 * 8;
          float& sum = sums.x[i][j][v];
          sum = fmaf(stage.w_scale[unit][h][row] * a_scale[v % 2], static_cast<float>(c.x[v]), sum);
          if constexpr (kMinimum<Block>)
            sum = fmaf(stage.w_min[unit][h][row], stage.a_sum[unit][h][column + v % 2], sum);
        }
      }
    }
  }
}

// Two stages take turns: while one is multiplied, the next one's weights are in registers and its activations on their
// way.
template <class Block, int kRows, bool kGrouped>
__device__ inline void multiply_block_of_tiles(const MatmulJob& job) {
  using Tile = WarpTile<kRows>;
  using TwoStages = Stage<Block, kRows>[2];
  SHARED(TwoStages, stages);
  const int block = static_cast<int>(blockIdx.x), p = part_of(job, block);
  const MatmulPart& part = job.part[p];
  const std::int64_t first_weight = std::int64_t{block - job.first_block[p]} * kWeightTile;
  const RowTile<kRows, kGrouped> rows(job, part);
  if constexpr (kGrouped) {
    if (rows.count == 0) return;
  }
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const int weight0 = warp / Tile::across * Tile::weights, row0 = warp % Tile::across * Tile::rows;
  Loader<Block, kRows, kGrouped> loader(part.weight, job.a, rows, first_weight);
  Accumulators<kRows> sums;

  const int steps = loader.steps();
  loader.load(stages[0], 0);
  loader.store(stages[0]);
  cp_async_wait<0>();
  __syncthreads();
  for (int step = 0; step < steps; ++step) {
    const bool more = step + 1 < steps;
    Stage<Block, kRows>& next = stages[(step + 1) % 2];
    if (more) loader.load(next, step + 1);
#pragma unroll
    for (int unit = 0; unit < kUnits; ++unit) multiply_unit(stages[step % 2], unit, weight0, row0, sums);
    if (more) loader.store(next);
    cp_async_wait<0>();
    __syncthreads();
  }

  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int i = 0; i < Tile::weight_tiles; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::row_tiles; ++j) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const std::int64_t weight_row = first_weight + weight0 + i * 16 + lane / 4 + v / 2 * 8;
        const int row = row0 + j * 8 + lane % 4 * 2 + v % 2;
        if (weight_row < part.weight.rows && row < rows.count) {
          write_output(part, weight_row, rows.output(row), sums.x[i][j][v], rows.first_weight_row);
        }
      }
    }
  }
}

template <class Block, int kRows>
__global__ void __launch_bounds__(kThreads) multiply_tiles(MatmulJob job) {
  multiply_block_of_tiles<Block, kRows, false>(job);
}

// Two blocks of a multiprocessor: left to itself the assembler goes for four, and spills.
template <class Block>
__global__ void __launch_bounds__(kThreads, 2) multiply_expert_tiles(MatmulJob job) {
  multiply_block_of_tiles<Block, kGroupTile, true>(job);
}

template <class Block, int kRows>
void launch_tiles(Stream& stream, const MatmulJob& job) {
  launch(multiply_tiles<Block, kRows>,
         {.grid = {job.first_block[job.n], (job.rows + kRows - 1) / kRows}, .block = kThreads}, stream, job);
}

}  // namespace

void matmul_tiles(Stream& stream, const MatmulPart* parts, int n, const ActivationPlanes& a, int rows) {
  const MatmulJob job = make_job(parts, n, a, rows, kWeightTile);
  // A tile no wider than the batch wants: decode of several slots has 9 to 16 rows, the end of a prompt anything.
  constexpr int kNarrow = 32, kMedium = 64, kWide = 128;
  with_block(parts[0].weight.type, [&]<class Block>() {
    if (rows <= kNarrow) return launch_tiles<Block, kNarrow>(stream, job);
    // Two scales and two minima a unit are more than the default of shared memory beside the widest tile.
    constexpr bool kFits = sizeof(Stage<Block, kWide>) * 2 <= kDefaultSharedBytes;
    launch_tiles<Block, kFits ? kWide : kMedium>(stream, job);
  });
}

void matmul_expert_tiles(Stream& stream, const MatmulPart& part, const ActivationPlanes& a, const ExpertPairs& pairs) {
  MatmulJob job = make_job(&part, 1, a, pairs.pairs, kWeightTile);
  job.experts = pairs;
  with_block(part.weight.type, [&]<class Block>() {
    launch(multiply_expert_tiles<Block>, {.grid = {job.first_block[1], pairs.tiles}, .block = kThreads}, stream, job);
  });
}

}  // namespace KERNEL_NAMESPACE
