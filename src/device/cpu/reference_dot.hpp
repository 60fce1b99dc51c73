#pragma once
// The sums of docs/arithmetic.md for decoded weights, one output at a time.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <type_traits>

#include "base/blocks.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/reference.hpp"

namespace bankml::reference {

inline float tree8(const float* a) noexcept {
  float b[4];
  for (int i = 0; i < 4; ++i) b[i] = a[i] + a[i + 4];
  return (b[0] + b[2]) + (b[1] + b[3]);
}

inline float tree16(const float* a) noexcept {
  float b[8];
  for (int i = 0; i < 8; ++i) b[i] = a[i] + a[i + 8];
  return tree8(b);
}

inline float tree4x16(const float (&s)[4][16]) noexcept {
  float t[16];
  for (int l = 0; l < 16; ++l) t[l] = (s[0][l] + s[2][l]) + (s[1][l] + s[3][l]);
  return tree16(t);
}

enum class Sum { lanes, even_and_odd, whole };

// Weights in blocks of 32 (2.4, 2.5, 3.2, 3.3, 3.4). Lane i: elements 4i..4i+3.
template <class Block>
float dot_blocks(const Decoded<Block>* blocks, std::int64_t n, const Q8Row& a, Sum form) noexcept {
  float acc[2][8] = {}, whole = 0, minimum = 0, rest = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    int lanes[8] = {}, sum = 0;
    for (int e = 0; e < kBlock; ++e) lanes[e / 4] += blocks[k].q[e] * a.quants[k * kBlock + e];
    for (const int lane : lanes) sum += lane;
    const float d = to_float(blocks[k].d) * a.scale[k];
    if (form == Sum::whole) {
      whole = std::fma(static_cast<float>(sum), d, whole);
    } else if (form == Sum::even_and_odd && n % 2 == 1 && k == n - 1) {
      rest = d * static_cast<float>(sum);
    } else {
      float* lane_acc = acc[form == Sum::even_and_odd ? k % 2 : 0];
      for (int i = 0; i < 8; ++i) lane_acc[i] = std::fma(d, static_cast<float>(lanes[i]), lane_acc[i]);
    }
    if constexpr (kTraits<Block>.minimum) minimum = std::fma(to_float(blocks[k].m), a.scaled_sum[k], minimum);
  }
  if (form == Sum::whole) return whole;
  if (form == Sum::even_and_odd) {
    for (int i = 0; i < 8; ++i) acc[0][i] += acc[1][i];
    return tree8(acc[0]) + rest;
  }
  return kTraits<Block>.minimum ? tree8(acc[0]) + minimum : tree8(acc[0]);
}

// Sum of minimum times activation sum over elements [begin, end) of a super-block.
template <class Block>
int min_sum(const Decoded<Block>& block, const std::int16_t* sums, int begin, int end) noexcept {
  int sum = 0;
  for (int g = begin / 16; g < end / 16; ++g) sum += block.min[g * 16 / kTraits<Block>.sub] * sums[g];
  return sum;
}

// Super-blocks added up `unit` elements at a time into one accumulator (repacked Q4_K and Q2_K; IQ4_XS with many rows).
template <class Block>
float dot_super_whole(const Decoded<Block>* blocks, std::int64_t n, const Q8KRow& a, int unit) noexcept {
  float acc = 0, minimum = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    const float d = to_float(blocks[k].d) * a.scale[k], dmin = to_float(blocks[k].m) * a.scale[k];
    for (int begin = 0; begin < kSuperBlock; begin += unit) {
      int sum = 0;
      for (int e = begin; e < begin + unit; ++e) {
        sum += blocks[k].scale[e / kTraits<Block>.sub] * blocks[k].q[e] * a.quants[k * kSuperBlock + e];
      }
      acc = std::fma(static_cast<float>(sum), d, acc);
      const int mins = min_sum(blocks[k], a.sums + k * 16, begin, begin + unit);
      minimum = std::fma(static_cast<float>(mins), dmin, minimum);
    }
  }
  return kTraits<Block>.minimum ? acc - minimum : acc;
}

// Super-blocks with lanes (3.2).
template <class Block>
float dot_super(const Decoded<Block>* blocks, std::int64_t n, const Q8KRow& a) noexcept {
  constexpr bool is_q2 = std::is_same_v<Block, BlockQ2K>, is_q4 = std::is_same_v<Block, BlockQ4K>;
  constexpr bool is_q6 = std::is_same_v<Block, BlockQ6K>;
  constexpr int chains = !kTraits<Block>.minimum ? 0 : is_q2 ? 8 : is_q4 ? 4 : 1;
  float acc[8] = {}, mins[4] = {};
  for (std::int64_t k = 0; k < n; ++k) {
    const Decoded<Block>& block = blocks[k];
    const std::int16_t* sums = a.sums + k * 16;
    int lanes[8] = {};
    for (int e = 0; e < kSuperBlock; ++e) {
      const int q = block.q[e] + (is_q6 ? 32 : 0);
      lanes[e % 32 / 4] += block.scale[e / kTraits<Block>.sub] * q * a.quants[k * kSuperBlock + e];
    }
    if (is_q6) {  // the offset is taken off in other lanes than those of its elements
      for (int g = 0; g < 16; ++g) lanes[g / 2] -= 32 * block.scale[g] * sums[g];
    }
    const float dmin = -a.scale[k] * to_float(block.m);
    float* chain = is_q2 ? acc : mins;
    for (int i = 0; i < chains; ++i) {
      const int begin = i * kSuperBlock / chains, end = begin + kSuperBlock / chains;
      chain[i] = std::fma(dmin, static_cast<float>(min_sum(block, sums, begin, end)), chain[i]);
    }
    const float d = a.scale[k] * to_float(block.d);
    for (int i = 0; i < 8; ++i) acc[i] = std::fma(d, static_cast<float>(lanes[i]), acc[i]);
  }
  if (is_q4) return tree8(acc) + ((mins[0] + mins[2]) + (mins[1] + mins[3]));
  if (chains == 1) return tree8(acc) + mins[0];
  return tree8(acc);
}

// A decoded weight row times one row of activations, that of `token`.
template <class Block>
float dot_decoded(const MatmulShape& shape, const Decoded<Block>* row, const Q8Row& q8, const Q8KRow& q8_k,
                  int token) noexcept {
  const std::int64_t n = shape.cols / kTraits<Block>.length;
  const bool in_group_of_four = token < shape.batch / 4 * 4;
  if constexpr (kTraits<Block>.length == kBlock) {
    const bool split = std::is_same_v<Block, BlockMxfp4> || (std::is_same_v<Block, BlockIq4Nl> && shape.batch == 1);
    return dot_blocks(row, n, q8, shape.repacked ? Sum::whole : split ? Sum::even_and_odd : Sum::lanes);
  } else if constexpr (std::is_same_v<Block, BlockIq4Xs>) {
    return shape.batch >= 8 ? dot_super_whole(row, n, q8_k, kSuperBlock) : dot_super(row, n, q8_k);
  } else {
    constexpr int kUnitOfFour = std::is_same_v<Block, BlockQ4K> ? 64 : 128;
    if (!shape.repacked) return dot_super(row, n, q8_k);
    return dot_super_whole(row, n, q8_k, in_group_of_four ? kUnitOfFour : kSuperBlock);
  }
}

inline float value(float x) noexcept {
  return x;
}
inline float value(half x) noexcept {
  return to_float(x);
}

// One accumulator of 16 lanes: F32 and F16 with several rows (3.4).
template <class T>
float dot_float_many(const T* w, const float* x, std::int64_t n) noexcept {
  float acc[16] = {};
  for (std::int64_t i = 0; i < n; ++i) acc[i % 16] = std::fma(value(w[i]), x[i], acc[i % 16]);
  return tree16(acc);
}

// Four accumulators of 16 lanes (2.9, 3.4) for the first `done` elements.
template <class T>
float dot_float_one(const T* w, const float* x, std::int64_t n, std::int64_t& done) noexcept {
  float acc[4][16] = {};
  done = n / 64 * 64;
  for (std::int64_t i = 0; i < done; ++i) {
    float& lane = acc[i % 64 / 16][i % 16];
    lane = std::fma(value(w[i]), x[i], lane);
  }
  return tree4x16(acc);
}

inline float dot_float(const MatmulShape& shape, const float* w, const float* x) noexcept {
  const std::int64_t n = shape.cols;
  if (sums_in_sixteen_lanes(shape)) return dot_float_many(w, x, n);
  std::int64_t i;
  float sum = dot_float_one(w, x, n, i);
  for (; i < n / 8 * 8; ++i) sum += w[i] * x[i];
  for (; i < n; ++i) sum = std::fma(w[i], x[i], sum);
  return sum;
}

// The activations are rounded to half already.
inline float dot_float(const MatmulShape& shape, const half* w, const float* x) noexcept {
  const std::int64_t n = shape.cols;
  if (sums_in_sixteen_lanes(shape)) return dot_float_many(w, x, n);
  std::int64_t i;
  double sum = dot_float_one(w, x, n, i);
  for (; i < n; ++i) sum += static_cast<double>(to_float(w[i]) * x[i]);
  return static_cast<float>(sum);
}

inline float dot_float(const MatmulShape& shape, const bfloat16* w, const bfloat16* x) noexcept {
  const std::int64_t n = shape.cols;
  const bool many = sums_pairs_in_sixteen_lanes(shape);
  float acc[2][16] = {};
  const std::int64_t done = many ? n : n / 64 * 64;
  for (std::int64_t p = 0; p < done; p += 2) {
    float& lane = acc[many ? 0 : p % 64 / 32][p % 32 / 2];
    lane = std::fma(to_float(w[p]), to_float(x[p]), std::fma(to_float(w[p + 1]), to_float(x[p + 1]), lane));
  }
  if (many) return tree16(acc[0]);
  double sum = static_cast<double>(tree16(acc[0])) + static_cast<double>(tree16(acc[1]));
  for (std::int64_t i = done; i < n; ++i) sum += static_cast<double>(to_float(w[i]) * to_float(x[i]));
  return static_cast<float>(sum);
}

}  // namespace bankml::reference
