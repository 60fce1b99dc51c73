// Up to eight rows of activations: the weight is streamed past them once, a warp a pair of its rows.
//
// Rounding points as in the peer's kernel for few rows (docs/arithmetic.md, 5.2), but for a whole unit where its threads take parts
// of one; the order of the sum over units is ours.
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

__device__ inline float round_half(float x) {
  return to_float(to_half(x));
}

// A unit of one row of activations.
struct ActivationUnit {
  std::int32_t q[kUnitWords];
  float d, s;
  int sum[2];  // of the integers of either half
};

template <bool kSums>
__device__ inline void load_activation(const ActivationPlanes& a, std::int64_t row, int unit, ActivationUnit& out) {
  const std::int64_t index = row * (a.dim / kUnit) + unit;
  const int4* q = reinterpret_cast<const int4*>(a.q + index * kUnit);
  const int4 first = q[0], second = q[1];
  out.q[0] = first.x;
  out.q[1] = first.y;
  out.q[2] = first.z;
  out.q[3] = first.w;
  out.q[4] = second.x;
  out.q[5] = second.y;
  out.q[6] = second.z;
  out.q[7] = second.w;
  out.d = a.d[index];
  out.s = a.s[index];
  if constexpr (kSums) {
    out.sum[0] = a.sums[2 * index];
    out.sum[1] = a.sums[2 * index + 1];
  }
}

template <class Block>
__device__ inline float multiply_units(const WeightUnit<Block>& w, const ActivationUnit& a) {
  using Layout = PlaneLayout<Block>;
  constexpr BlockTraits traits = Layout::traits;
  int half_sum[2] = {};
  for (int i = 0; i < kUnitWords; ++i) half_sum[i / 4] = __dp4a(w.q[i], a.q[i], half_sum[i / 4]);
  const int sum = half_sum[0] + half_sum[1];
  if constexpr (!Layout::super && traits.minimum) {
    return fmaf(static_cast<float>(sum), round_half(w.d * a.d), round_half(w.m * a.s));
  } else if constexpr (!Layout::super && traits.offset != 0) {
    // The offset times the sum of the floats, not of their integers.
    return w.d * (static_cast<float>(sum) * a.d - static_cast<float>(traits.offset) * a.s);
  } else if constexpr (!Layout::super) {
    return w.d * a.d * static_cast<float>(sum);
  } else {
    int scaled, minimum = 0;
    if constexpr (Layout::halves == 2) {
      scaled = half_sum[0] * w.scale[0] + half_sum[1] * w.scale[1];
      if constexpr (traits.minimum) minimum = a.sum[0] * w.min[0] + a.sum[1] * w.min[1];
    } else {
      scaled = sum * w.scale[0];
      if constexpr (traits.minimum) minimum = (a.sum[0] + a.sum[1]) * w.min[0];
    }
    const float value = w.d * (a.d * static_cast<float>(scaled));
    if constexpr (!traits.minimum) return value;
    return value - w.m * (a.d * static_cast<float>(minimum));
  }
}

// Each lane's sums become those of the warp; lane i writes the i-th of them.
template <int kRows>
__device__ inline void write_sums(const MatmulPart& part, std::int64_t first, float (&sums)[kWeightRows][kRows], int rows) {
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
    write_output(part, first + weight_row, row, mine);
  }
}

template <class Block, int kRows>
__global__ void __launch_bounds__(kThreads) multiply_blocks(MatmulJob job) {
  using Layout = PlaneLayout<Block>;
  constexpr BlockTraits traits = Layout::traits;
  constexpr bool kCodes = !Layout::super && traits.offset != 0;
  const int block = static_cast<int>(blockIdx.x), p = part_of(job, block);
  const MatmulPart& part = job.part[p];
  const std::int64_t first = (std::int64_t{block - job.first_block[p]} * kWarps + threadIdx.x / 32) * kWeightRows;
  if (first >= part.weight.rows) return;
  const int units = part.weight.cols / kUnit;
  float sums[kWeightRows][kRows] = {};
  for (int unit = threadIdx.x % 32; unit < units; unit += 32) {
    WeightUnit<Block> w[kWeightRows];
    for (int r = 0; r < kWeightRows; ++r) {
      const std::int64_t row = first + r < part.weight.rows ? first + r : first;
      load_unit<Block, !kCodes>(part.weight, row * units + unit, w[r]);
    }
    for (int n = 0; n < kRows; ++n) {
      ActivationUnit a;
      load_activation<Layout::super && traits.minimum>(job.a, n < job.rows ? n : 0, unit, a);
      for (int r = 0; r < kWeightRows; ++r) sums[r][n] += multiply_units(w[r], a);
    }
  }
  write_sums(part, first, sums, job.rows);
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
  const int cols = part.weight.cols, lane = threadIdx.x % 32;
  const T* weight[kWeightRows];
  for (int r = 0; r < kWeightRows; ++r) {
    weight[r] = reinterpret_cast<const T*>(part.weight.low) + (first + r < part.weight.rows ? first + r : first) * cols;
  }
  float sums[kWeightRows][kRows] = {};
  if constexpr (kAligned) {
    for (int k = lane * kVector<T>; k < cols; k += 32 * kVector<T>) {
      Vector<T> w[kWeightRows];
      for (int r = 0; r < kWeightRows; ++r) w[r] = *reinterpret_cast<const Vector<T>*>(weight[r] + k);
      for (int n = 0; n < kRows; ++n) {
        const auto x = *reinterpret_cast<const Vector<T>*>(activation_row<T>(job.a, n < job.rows ? n : 0) + k);
        for (int r = 0; r < kWeightRows; ++r) {
          for (int i = 0; i < kVector<T>; ++i) sums[r][n] = fmaf(widen(w[r].x[i]), widen(x.x[i]), sums[r][n]);
        }
      }
    }
  } else {
    for (int k = lane; k < cols; k += 32) {
      for (int n = 0; n < kRows; ++n) {
        const float x = widen(activation_row<T>(job.a, n < job.rows ? n : 0)[k]);
        for (int r = 0; r < kWeightRows; ++r) sums[r][n] = fmaf(widen(weight[r][k]), x, sums[r][n]);
      }
    }
  }
  write_sums(part, first, sums, job.rows);
}

template <int kRows>
void launch_vec(Stream& stream, const MatmulJob& job) {
  const auto run = [&](auto kernel) { launch(kernel, {.grid = job.first_block[job.n], .block = kThreads}, stream, job); };
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

}  // namespace KERNEL_NAMESPACE
