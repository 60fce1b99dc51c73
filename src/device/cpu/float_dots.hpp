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

// The same of rows [row, row + 4).
inline void finish_four(const MatmulJob& job, std::int64_t row, int token, Simd::Four sum) noexcept {
  const std::int64_t at = token * job.rows + row;
  if (job.bias) sum = Simd::add(sum, Simd::load_four(job.bias + row));
  if (job.scale != 1.0f) sum = Simd::mul(sum, Simd::broadcast_four(job.scale));
  if (job.residual) sum = Simd::add(sum, Simd::load_four(job.residual + at));
  Simd::store(job.out + at, sum);
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
inline constexpr int kPanelTokens = 48;        // where a row is longer than a stretch, their sums take 24 KiB
inline constexpr std::int64_t kStretch = 768;  // elements: eight rows of them take 24 KiB of the first cache

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
    const T* from = w + r * cols;
    Simd::Register* to = &out.of[r / kTileRows][0][0][r % kTileRows];
    for (const T* end = from + n; from != end; from += 16, to += kTileRows) {
      __builtin_prefetch(from + kGroup * cols);
      const Simd::Sixteen lanes = Simd::load16(from);
#pragma GCC unroll 2
      for (int k = 0; k < kLaneRegisters; ++k) to[k * kStretch / 16 * kTileRows] = Simd::lanes_of(lanes, k);
    }
  }
}

// A stretch of a row: whether sums of an earlier one are to be added to, and whether it is the last.
struct Stretch {
  std::int64_t begin, n;
  bool adds, last;
};

// Rows [row, row + 4) times `tokens` tokens over a stretch. `sums`: the lanes' sums, (kLaneRegisters, kTileRows,
// kTileTokens) registers; after the last stretch they are added up and finished.
template <int tokens>
void float_tile(const MatmulJob& job, const WideTile& w, const float* x, const Stretch& stretch, Simd::Register* sums,
                std::int64_t row, int token) noexcept {
  constexpr int kSums = kTileRows * kTileTokens;
  Simd::Register acc[kTileRows][tokens];
  for (int k = 0; k < kLaneRegisters; ++k, sums += kSums) {
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < tokens; ++t) acc[r][t] = stretch.adds ? sums[r * kTileTokens + t] : Simd::Register{};
    }
    const float* from = x + token * job.cols + stretch.begin + k * Simd::kRegisterLanes;
    for (const auto *weights_of = w[k], *end = weights_of + stretch.n / 16; weights_of != end;
         ++weights_of, from += 16) {
      Simd::Register xs[tokens];
#pragma GCC unroll 8
      for (int t = 0; t < tokens; ++t) xs[t] = Simd::load_register(from + t * job.cols);
#pragma GCC unroll 8
      for (int r = 0; r < kTileRows; ++r) {
        const Simd::Register weights = (*weights_of)[r];
#pragma GCC unroll 8
        for (int t = 0; t < tokens; ++t) acc[r][t] = Simd::register_fma(weights, xs[t], acc[r][t]);
      }
    }
    if (stretch.last && k == kLaneRegisters - 1) break;
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) {
#pragma GCC unroll 8
      for (int t = 0; t < tokens; ++t) sums[r * kTileTokens + t] = acc[r][t];
    }
  }
  if (!stretch.last) return;
  const Simd::Register* before = sums - (kLaneRegisters - 1) * kSums;
#pragma GCC unroll 8
  for (int t = 0; t < tokens; ++t) {
    Simd::Rows folded[kTileRows];
#pragma GCC unroll 8
    for (int r = 0; r < kTileRows; ++r) folded[r] = Simd::fold(before[r * kTileTokens + t], acc[r][t]);
    finish_four(job, row, token + t, Simd::trees4(folded));
  }
}

// Rows [row, row + 8), or as many as there are, times tokens [token, token_end).
template <class T>
void float_group(const MatmulJob& job, const float* x, std::int64_t row, int token, int token_end) noexcept {
  const T* w = reinterpret_cast<const T*>(job.quants) + row * job.cols;
  const std::int64_t rows = row + kGroup <= job.rows ? kGroup : job.rows - row;
  const bool whole = job.cols <= kStretch;
  using TileSums = Simd::Register[kLaneRegisters * kTileRows * kTileTokens];
  WideWeights wide;
  TileSums sums[kPanelTokens / kTileTokens][kGroup / kTileRows];
  for (int first = token; first < token_end; first += kPanelTokens) {
    const int end = first + kPanelTokens <= token_end ? first + kPanelTokens : token_end;
    for (std::int64_t begin = 0; begin < job.cols; begin += kStretch) {
      const bool last = begin + kStretch >= job.cols;
      const Stretch stretch{begin, last ? job.cols - begin : kStretch, begin > 0, last};
      if (first == token || !whole) widen_weights(w + begin, job.cols, rows, stretch.n, wide);
      for (int t = first; t < end; t += kTileTokens) {
        for (std::int64_t r = 0; r < rows; r += kTileRows) {
          Simd::Register* const to = sums[whole ? 0 : (t - first) / kTileTokens][r / kTileRows];
          const WideTile& tile_weights = wide.of[r / kTileRows];
          if (end - t >= kTileTokens) float_tile<kTileTokens>(job, tile_weights, x, stretch, to, row + r, t);
          if (end - t == 2) float_tile<2>(job, tile_weights, x, stretch, to, row + r, t);
          if (end - t == 1) float_tile<1>(job, tile_weights, x, stretch, to, row + r, t);
        }
      }
    }
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
