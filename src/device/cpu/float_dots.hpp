#pragma once
// Mat-muls with weights in floating point, over the operations of a `Simd` struct (docs/arithmetic.md, 2.9
// and 3.4).
#include "device/cpu/matmul_kernels.hpp"

namespace bankml {
namespace {

inline void finish_one(const MatmulJob& job, std::int64_t row, int token, float sum) noexcept {
  const std::int64_t at = token * job.rows + row;
  if (job.bias) sum += job.bias[row];
  if (job.scale != 1.0f) sum *= job.scale;
  if (job.residual) sum += job.residual[at];
  job.out[at] = sum;
}

// c + a * b over n elements of one row and T rows of x that are `stride` apart; one accumulator each.
template <class T, int tokens>
void dot_many(const T* w, const T* x, std::int64_t stride, std::int64_t n, float (&out)[tokens]) noexcept {
  Simd::Sixteen acc[tokens];
  if constexpr (std::is_same_v<T, bfloat16>) {
    for (std::int64_t i = 0; i < n; i += 32) {
      const Simd::Sixteen first = Simd::firsts(w + i), second = Simd::seconds(w + i);
#pragma GCC unroll 8
      for (int t = 0; t < tokens; ++t) {
        const bfloat16* p = x + t * stride + i;
        acc[t] = Simd::fma(first, Simd::firsts(p), Simd::fma(second, Simd::seconds(p), acc[t]));
      }
    }
  } else {
    for (std::int64_t i = 0; i < n; i += 16) {
      const Simd::Sixteen row = Simd::load16(w + i);
#pragma GCC unroll 8
      for (int t = 0; t < tokens; ++t) acc[t] = Simd::fma(row, Simd::load16(x + t * stride + i), acc[t]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < tokens; ++t) out[t] = Simd::tree16(acc[t]);
}

template <class T>
float dot_one(const T* w, const T* x, std::int64_t n) noexcept {
  Simd::Sixteen acc[4];
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
#pragma GCC unroll 8
    for (int k = 0; k < 4; ++k) acc[k] = Simd::fma(Simd::load16(w + i + 16 * k), Simd::load16(x + i + 16 * k), acc[k]);
  }
  float sum = Simd::tree16(Simd::add(Simd::add(acc[0], acc[2]), Simd::add(acc[1], acc[3])));
  if constexpr (std::is_same_v<T, float>) {
    for (; i < n / 8 * 8; ++i) sum += w[i] * x[i];
    for (; i < n; ++i) sum = __builtin_fmaf(w[i], x[i], sum);
    return sum;
  } else {
    double total = sum;
    for (; i < n; ++i) total += static_cast<double>(to_float(w[i]) * to_float(x[i]));
    return static_cast<float>(total);
  }
}

template <>
float dot_one(const bfloat16* w, const bfloat16* x, std::int64_t n) noexcept {
  Simd::Sixteen acc[2];
  std::int64_t i = 0;
  for (; i + 64 <= n; i += 64) {
#pragma GCC unroll 8
    for (int k = 0; k < 2; ++k) {
      const bfloat16 *p = w + i + 32 * k, *q = x + i + 32 * k;
      acc[k] = Simd::fma(Simd::firsts(p), Simd::firsts(q), Simd::fma(Simd::seconds(p), Simd::seconds(q), acc[k]));
    }
  }
  double sum = static_cast<double>(Simd::tree16(acc[0])) + static_cast<double>(Simd::tree16(acc[1]));
  for (; i < n; ++i) sum += static_cast<double>(to_float(w[i]) * to_float(x[i]));
  return static_cast<float>(sum);
}

template <class T, int tokens>
void float_tile(const MatmulJob& job, const T* w, const T* x, std::int64_t row, int token) noexcept {
  float sums[tokens];
  dot_many(w, x + token * job.cols, job.cols, job.cols, sums);
#pragma GCC unroll 8
  for (int t = 0; t < tokens; ++t) finish_one(job, row, token + t, sums[t]);
}

template <class T>
void float_matmul(const MatmulJob& job, std::int64_t row, std::int64_t row_end, int token, int token_end) {
  const MatmulShape shape{job.rows, job.cols, job.batch, false};
  const T* x;
  bool many = sums_in_sixteen_lanes(shape);
  if constexpr (std::is_same_v<T, float>) x = job.f32;
  if constexpr (std::is_same_v<T, half>) x = job.f16;
  if constexpr (std::is_same_v<T, bfloat16>) {
    x = job.bf16;
    many = sums_pairs_in_sixteen_lanes(shape);
  }
  for (std::int64_t r = row; r < row_end; ++r) {
    const T* w = reinterpret_cast<const T*>(job.quants) + r * job.cols;
    int t = token;
    if (many) {
      for (; t + 4 <= token_end; t += 4) float_tile<T, 4>(job, w, x, r, t);
      for (; t < token_end; ++t) float_tile<T, 1>(job, w, x, r, t);
    } else {
      for (; t < token_end; ++t) finish_one(job, r, t, dot_one(w, x + t * job.cols, job.cols));
    }
  }
}

}  // namespace
}  // namespace bankml
