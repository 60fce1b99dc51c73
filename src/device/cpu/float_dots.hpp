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

// c + a * b over n elements of one row and rows of x that are `stride` apart; one accumulator each.
template <int tokens>
void dot_many(const bfloat16* w, const bfloat16* x, std::int64_t stride, std::int64_t n,
              float (&out)[tokens]) noexcept {
  Simd::Sixteen acc[tokens];
  for (std::int64_t i = 0; i < n; i += 32) {
    const Simd::Sixteen first = Simd::firsts(w + i), second = Simd::seconds(w + i);
#pragma GCC unroll 8
    for (int t = 0; t < tokens; ++t) {
      const bfloat16* p = x + t * stride + i;
      acc[t] = Simd::fma(first, Simd::firsts(p), Simd::fma(second, Simd::seconds(p), acc[t]));
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < tokens; ++t) out[t] = Simd::tree16(acc[t]);
}

// Of F32 and F16; x is rounded to half already.
template <class T>
float dot_one(const T* w, const float* x, std::int64_t n) noexcept {
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
    for (; i < n; ++i) total += static_cast<double>(to_float(w[i]) * x[i]);
    return static_cast<float>(total);
  }
}

inline float dot_one(const bfloat16* w, const bfloat16* x, std::int64_t n) noexcept {
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

template <int tokens>
void bfloat16_tile(const MatmulJob& job, const bfloat16* w, std::int64_t row, int token) noexcept {
  float sums[tokens];
  dot_many(w, job.bf16 + token * job.cols, job.cols, job.cols, sums);
#pragma GCC unroll 8
  for (int t = 0; t < tokens; ++t) finish_one(job, row, token + t, sums[t]);
}

inline void bfloat16_matmul(const MatmulJob& job, std::int64_t row, std::int64_t row_end, int token, int token_end) {
  const bool many = sums_pairs_in_sixteen_lanes({job.rows, job.cols, job.batch, false});
  for (; row < row_end; ++row) {
    const bfloat16* w = reinterpret_cast<const bfloat16*>(job.quants) + row * job.cols;
    int t = token;
    if (many) {
      for (; t + 4 <= token_end; t += 4) bfloat16_tile<4>(job, w, row, t);
      for (; t < token_end; ++t) bfloat16_tile<1>(job, w, row, t);
    } else {
      for (; t < token_end; ++t) finish_one(job, row, t, dot_one(w, job.bf16 + t * job.cols, job.cols));
    }
  }
}

// F32 and F16 with several tokens: sixteen lanes for each output. Four rows times three tokens fill the registers of
// AVX2 with sums of eight lanes, so each half of the lanes passes over the row by itself. Weights are widened once for
// many tokens, a stretch of eight rows at a time, in the order in which they are multiplied.
inline constexpr int kTileRows = 4, kTileTokens = 3;
inline constexpr int kPanelTokens = 48;        // their sums take 24 KiB
inline constexpr std::int64_t kStretch = 768;  // elements: four rows of them take 12 KiB of the first cache

// Registers that hold the sixteen lanes, each of which passes over the row by itself.
inline constexpr int kLaneRegisters = 16 / Simd::kRegisterLanes;
using WideTile = Simd::Register[kLaneRegisters][kStretch / 16][kTileRows];
struct WideWeights {
  WideTile of[kGroup / kTileRows];
};

// n elements of `rows` rows, a multiple of kTileRows. Those of the next group are fetched meanwhile: weights come from
// memory, and an address beyond the last does no harm.
template <class T>
void widen_weights(const T* w, std::int64_t cols, std::int64_t rows, std::int64_t n, WideWeights& out) noexcept {
  for (std::int64_t r = 0; r < rows; ++r) {
    auto& tile = out.of[r / kTileRows];
    for (std::int64_t i = 0; i < n; i += 16) {
      __builtin_prefetch(w + (r + kGroup) * cols + i);
      const Simd::Sixteen lanes = Simd::load16(w + r * cols + i);
#pragma GCC unroll 2
      for (int k = 0; k < kLaneRegisters; ++k) tile[k][i / 16][r % kTileRows] = Simd::lanes_of(lanes, k);
    }
  }
}

// sums (tokens, kGroup, 16) of the tile's rows = or += weights times x over n elements.
template <int tokens>
void float_tile(const WideTile& w, const float* x, std::int64_t cols, std::int64_t n, bool add, float* sums) noexcept {
  for (int k = 0; k < kLaneRegisters; ++k) {
    const int first = k * Simd::kRegisterLanes;
    Simd::Register acc[kTileRows][tokens];
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < tokens; ++t) {
        acc[r][t] = add ? Simd::load_register(sums + (t * kGroup + r) * 16 + first) : Simd::Register{};
      }
    }
    const float* from = x + first;
    for (const auto *weights_of = w[k], *end = weights_of + n / 16; weights_of != end; ++weights_of, from += 16) {
      Simd::Register xs[tokens];
#pragma GCC unroll 8
      for (int t = 0; t < tokens; ++t) xs[t] = Simd::load_register(from + t * cols);
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        const Simd::Register weights = (*weights_of)[r];
#pragma GCC unroll 8
        for (int t = 0; t < tokens; ++t) acc[r][t] = Simd::register_fma(weights, xs[t], acc[r][t]);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < tokens; ++t) Simd::store_register(sums + (t * kGroup + r) * 16 + first, acc[r][t]);
    }
  }
}

// Rows of a group times `tokens` tokens, at most kPanelTokens, over n elements of their rows.
inline void float_panel(const WideWeights& w, std::int64_t rows, const float* x, std::int64_t cols, std::int64_t n,
                        int tokens, bool add, float* sums) noexcept {
  for (std::int64_t r = 0; r < rows; r += kTileRows) {
    const WideTile& tile_weights = w.of[r / kTileRows];
    float* to = sums + r * 16;
    const auto at = [&](int t) { return x + t * cols; };
    int t = 0;
    for (; t + kTileTokens <= tokens; t += kTileTokens) {
      float_tile<kTileTokens>(tile_weights, at(t), cols, n, add, to + t * kGroup * 16);
    }
    if (tokens - t == 2) float_tile<2>(tile_weights, at(t), cols, n, add, to + t * kGroup * 16);
    if (tokens - t == 1) float_tile<1>(tile_weights, at(t), cols, n, add, to + t * kGroup * 16);
  }
}

template <class T>
void float_group(const MatmulJob& job, const float* x, std::int64_t row, int token, int token_end) noexcept {
  const T* w = reinterpret_cast<const T*>(job.quants) + row * job.cols;
  const std::int64_t rows = row + kGroup <= job.rows ? kGroup : job.rows - row;
  WideWeights wide;
  alignas(64) float sums[kPanelTokens][kGroup][16];
  if (rows < kGroup) __builtin_memset(sums, 0, sizeof sums);
  for (int first = token; first < token_end; first += kPanelTokens) {
    const int tokens = first + kPanelTokens <= token_end ? kPanelTokens : token_end - first;
    for (std::int64_t begin = 0; begin < job.cols; begin += kStretch) {
      const std::int64_t n = begin + kStretch < job.cols ? kStretch : job.cols - begin;
      if (first == token || job.cols > kStretch) widen_weights(w + begin, job.cols, rows, n, wide);
      float_panel(wide, rows, x + first * job.cols + begin, job.cols, n, tokens, begin > 0, sums[0][0]);
    }
    for (int t = 0; t < tokens; ++t) finish(job, row / kGroup, first + t, Simd::trees16(sums[t]));
  }
}

template <class T>
void float_matmul(const MatmulJob& job, std::int64_t row, std::int64_t row_end, int token, int token_end) {
  const float* x = std::is_same_v<T, half> ? job.f16 : job.f32;
  if (sums_in_sixteen_lanes({job.rows, job.cols, job.batch, false})) {
    for (; row < row_end; row += kGroup) float_group<T>(job, x, row, token, token_end);
    return;
  }
  for (; row < row_end; ++row) {
    const T* w = reinterpret_cast<const T*>(job.quants) + row * job.cols;
    for (int t = token; t < token_end; ++t) finish_one(job, row, t, dot_one(w, x + t * job.cols, job.cols));
  }
}

}  // namespace
}  // namespace bankml
