// Up to eight rows of activations: the weight is streamed past them once, a warp a pair of its rows.
//
// Integers are those of the CPU backend and exact; the floats of units are added in another order.
#include "kernels.cuh"
#include "matmul_output.cuh"
#include "warp.cuh"
#include "weight_unit.cuh"

namespace KERNEL_NAMESPACE {
namespace {

constexpr int kThreads = 128;
constexpr int kWarps = kThreads / 32;
// Two rows of the weight share what is loaded of the activations; more would keep too few warps in flight for decode.
constexpr int kWeightRows = 2;

// A unit of one row of activations.
struct ActivationUnit {
  std::int32_t q[kUnitWords];
  float d, s;
  int sum[2];  // of the integers of either half
};

template <class Block>
__device__ inline void load_activation(const ActivationPlanes& a, std::int64_t row, int unit, ActivationUnit& out) {
  using Layout = UnitLayout<Block>;
  const std::int64_t index = row * (a.dim / kUnit) + unit;
  const int4* q = reinterpret_cast<const int4*>((Layout::super ? a.q8k : a.q8) + index * kUnit);
  const int4 first = q[0], second = q[1];
  out.q[0] = first.x;
  out.q[1] = first.y;
  out.q[2] = first.z;
  out.q[3] = first.w;
  out.q[4] = second.x;
  out.q[5] = second.y;
  out.q[6] = second.z;
  out.q[7] = second.w;
  if constexpr (Layout::super) {
    out.d = a.q8k_d[index / Layout::units];
    if constexpr (Layout::minimum) {
      out.sum[0] = a.q8k_sums[2 * index];
      out.sum[1] = a.q8k_sums[2 * index + 1];
    }
  } else {
    out.d = a.q8_d[index];
    if constexpr (Layout::minimum) out.s = a.q8_s[index];
  }
}

// sum + w a
template <class Block>
__device__ inline float multiply_units(const WeightUnit<Block>& w, const ActivationUnit& a, float sum) {
  using Layout = UnitLayout<Block>;
  int half_sum[2] = {};
#pragma unroll
  for (int i = 0; i < kUnitWords; ++i) half_sum[i / 4] = __dp4a(w.q[i], a.q[i], half_sum[i / 4]);
  int total = half_sum[0] + half_sum[1];
  if constexpr (Layout::halves == 2) {
    total = half_sum[0] * w.scale[0] + half_sum[1] * w.scale[1];
  } else if constexpr (Layout::super) {
    total *= w.scale[0];
  }
  sum = fmaf(w.d * a.d, static_cast<float>(total), sum);
  if constexpr (Layout::minimum) {
    if constexpr (!Layout::super) {
      sum = fmaf(w.m, a.s, sum);
    } else {
      const int minimum = Layout::halves == 2 ? a.sum[0] * w.min[0] + a.sum[1] * w.min[Layout::halves - 1]
                                              : (a.sum[0] + a.sum[1]) * w.min[0];
      sum = fmaf(-(w.m * a.d), static_cast<float>(minimum), sum);
    }
  }
  return sum;
}

// What a block multiplies: the first row of the weight, counted over all experts, and of the activations.
struct Start {
  std::int64_t weight_row = 0, row = 0, out_row = 0;

  template <int kRows>
  __device__ static Start of(const MatmulJob& job, const MatmulPart& part) {
    if constexpr (kRows == 1) {
      if (job.experts.expert) {
        const int pair = job.experts.first + static_cast<int>(blockIdx.y);
        return {job.experts.expert[pair] * part.weight.rows, pair / job.experts.divisor, pair};
      }
    }
    return {};
  }
};

// Each lane's sums become those of the warp; lane i writes the i-th of them.
template <int kRows>
__device__ inline void write_sums(const MatmulPart& part, std::int64_t first, float (&sums)[kWeightRows][kRows],
                                  int rows, const Start& start) {
  const int lane = threadIdx.x % 32;
  float mine = 0;
  for (int r = 0; r < kWeightRows; ++r) {
    for (int n = 0; n < kRows; ++n) {
      const float sum = warp_sum(sums[r][n]);
      if (lane == r * kRows + n) mine = sum;
    }
  }
  const int weight_row = lane / kRows, row = lane % kRows;
  if (weight_row < kWeightRows && row < rows && first + weight_row < part.weight.rows) {
    // Of experts, the pair is the row that is written, and each has a bias of its own.
    write_output(part, first + weight_row, row + start.out_row, mine, start.weight_row);
  }
}

template <class Block, int kRows>
__global__ void __launch_bounds__(kThreads) multiply_blocks(MatmulJob job) {
  const int block = static_cast<int>(blockIdx.x), p = part_of(job, block);
  const MatmulPart& part = job.part[p];
  const std::int64_t first = (std::int64_t{block - job.first_block[p]} * kWarps + threadIdx.x / 32) * kWeightRows;
  if (first >= part.weight.rows) return;
  const Start start = Start::of<kRows>(job, part);
  const int units = part.weight.cols / kUnit;
  float sums[kWeightRows][kRows] = {};
  for (int unit = threadIdx.x % 32; unit < units; unit += 32) {
    WeightUnit<Block> w[kWeightRows];
    for (int r = 0; r < kWeightRows; ++r) {
      const std::int64_t row = first + r < part.weight.rows ? first + r : first;
      load_unit(part.weight, (start.weight_row + row) * units + unit, w[r]);
    }
    for (int n = 0; n < kRows; ++n) {
      ActivationUnit a;
      load_activation<Block>(job.a, start.row + (n < job.rows ? n : 0), unit, a);
      for (int r = 0; r < kWeightRows; ++r) sums[r][n] = multiply_units(w[r], a, sums[r][n]);
    }
  }
  write_sums(part, first, sums, job.rows, start);
}

template <class T>
__device__ inline const T* activation_row(const ActivationPlanes& a, std::int64_t row);
template <>
__device__ inline const float* activation_row<float>(const ActivationPlanes& a, std::int64_t row) {
  return a.f32 + row * a.dim;
}
template <>
__device__ inline const half* activation_row<half>(const ActivationPlanes& a, std::int64_t row) {
  return a.f16 + row * a.dim;
}
template <>
__device__ inline const bfloat16* activation_row<bfloat16>(const ActivationPlanes& a, std::int64_t row) {
  return a.bf16 + row * a.dim;
}

// Elements a lane loads at once: 16 bytes.
template <class T>
inline constexpr int kVector = 16 / sizeof(T);

template <class T>
struct alignas(16) Vector {
  T x[kVector<T>];
};

// Float weights, rows of any length; kAligned: those that are multiples of kVector.
template <class T, int kRows, bool kAligned>
__global__ void __launch_bounds__(kThreads) multiply_floats(MatmulJob job) {
  const int block = static_cast<int>(blockIdx.x), p = part_of(job, block);
  const MatmulPart& part = job.part[p];
  const std::int64_t first = (std::int64_t{block - job.first_block[p]} * kWarps + threadIdx.x / 32) * kWeightRows;
  if (first >= part.weight.rows) return;
  const Start start = Start::of<kRows>(job, part);
  const int cols = part.weight.cols, lane = threadIdx.x % 32;
  const T* weight[kWeightRows];
  for (int r = 0; r < kWeightRows; ++r) {
    const std::int64_t row = first + r < part.weight.rows ? first + r : first;
    weight[r] = reinterpret_cast<const T*>(part.weight.low) + (start.weight_row + row) * cols;
  }
  float sums[kWeightRows][kRows] = {};
  if constexpr (kAligned) {
    for (int k = lane * kVector<T>; k < cols; k += 32 * kVector<T>) {
      Vector<T> w[kWeightRows];
      for (int r = 0; r < kWeightRows; ++r) w[r] = *reinterpret_cast<const Vector<T>*>(weight[r] + k);
      for (int n = 0; n < kRows; ++n) {
        const auto x =
            *reinterpret_cast<const Vector<T>*>(activation_row<T>(job.a, start.row + (n < job.rows ? n : 0)) + k);
        for (int r = 0; r < kWeightRows; ++r) {
          for (int i = 0; i < kVector<T>; ++i) sums[r][n] = fmaf(widen(w[r].x[i]), widen(x.x[i]), sums[r][n]);
        }
      }
    }
  } else {
    for (int k = lane; k < cols; k += 32) {
      for (int n = 0; n < kRows; ++n) {
        const float x = widen(activation_row<T>(job.a, start.row + (n < job.rows ? n : 0))[k]);
        for (int r = 0; r < kWeightRows; ++r) sums[r][n] = fmaf(widen(weight[r][k]), x, sums[r][n]);
      }
    }
  }
  write_sums(part, first, sums, job.rows, start);
}

template <int kRows>
void launch_vec(Stream& stream, const MatmulJob& job) {
  const int pairs = job.experts.expert ? job.experts.pairs : 1;
  const auto run = [&](auto kernel) {
    launch(kernel, {.grid = {job.first_block[job.n], pairs}, .block = kThreads}, stream, job);
  };
  const auto run_floats = [&]<class T>() {
    if (job.part[0].weight.cols % kVector<T> == 0) {
      run(multiply_floats<T, kRows, true>);
    } else {
      run(multiply_floats<T, kRows, false>);
    }
  };
  switch (job.part[0].weight.type) {
    case DType::f32:
      return run_floats.template operator()<float>();
    case DType::f16:
      return run_floats.template operator()<half>();
    case DType::bf16:
      return run_floats.template operator()<bfloat16>();
    default:
      with_block(job.part[0].weight.type, [&]<class Block>() { run(multiply_blocks<Block, kRows>); });
  }
}

}  // namespace

void matmul_vec(Stream& stream, const MatmulPart* parts, int n, const ActivationPlanes& a, int rows) {
  const MatmulJob job = make_job(parts, n, a, rows, kWarps * kWeightRows);
  if (rows == 1) return launch_vec<1>(stream, job);
  if (rows <= 4) return launch_vec<4>(stream, job);
  launch_vec<kVecRows>(stream, job);
}

// A mat-vec for each pair, whatever the experts of its neighbours.
void matmul_expert_vec(Stream& stream, const MatmulPart& part, const ActivationPlanes& a, const ExpertPairs& pairs) {
  MatmulJob job = make_job(&part, 1, a, 1, kWarps * kWeightRows);
  // The second dimension of a grid is short.
  constexpr int kMaxPairs = 65535;
  for (int first = 0; first < pairs.pairs; first += kMaxPairs) {
    const int count = pairs.pairs - first < kMaxPairs ? pairs.pairs - first : kMaxPairs;
    job.experts = {.expert = pairs.expert, .pairs = count, .divisor = pairs.divisor, .first = first};
    launch_vec<1>(stream, job);
  }
}

}  // namespace KERNEL_NAMESPACE
