#include "device/cpu/reference.hpp"

#include <algorithm>
#include <cmath>

#include "base/blocks.hpp"

namespace bankml {
namespace {

float tree8(const float* a) noexcept {
  float b[4];
  for (int i = 0; i < 4; ++i) b[i] = a[i] + a[i + 4];
  return (b[0] + b[2]) + (b[1] + b[3]);
}

float tree16(const float* a) noexcept {
  float b[8];
  for (int i = 0; i < 8; ++i) b[i] = a[i] + a[i + 8];
  return tree8(b);
}

float tree4x16(const float (&s)[4][16]) noexcept {
  float t[16];
  for (int l = 0; l < 16; ++l) t[l] = (s[0][l] + s[2][l]) + (s[1][l] + s[3][l]);
  return tree16(t);
}

// Integer sums over elements 4i..4i+3, i = 0..7, of 32.
void lane_sums(const std::int8_t* w, const std::int8_t* a, int (&lanes)[8]) noexcept {
  for (int i = 0; i < 8; ++i) {
    lanes[i] = 0;
    for (int e = 4 * i; e < 4 * i + 4; ++e) lanes[i] += w[e] * a[e];
  }
}

enum class Sum { lanes, even_and_odd, whole };

// Weights in blocks of 32 (2.4, 2.5, 3.2, 3.3, 3.4).
template <class Block>
float dot_blocks(const std::byte* row, std::int64_t cols, const Q8Row& a, Sum form) noexcept {
  const auto* blocks = reinterpret_cast<const Block*>(row);
  const std::int64_t n = cols / kBlock;
  float acc[2][8] = {}, whole = 0, minimum = 0, rest = 0;
  for (std::int64_t k = 0; k < n; ++k) {
    std::int8_t q[kBlock];
    quants(blocks[k], q);
    int lanes[8];
    lane_sums(q, a.quants + k * kBlock, lanes);
    int sum = 0;
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
    if constexpr (requires { blocks[k].m; }) minimum = std::fma(to_float(blocks[k].m), a.scaled_sum[k], minimum);
  }
  if (form == Sum::whole) return whole;
  if (form == Sum::even_and_odd) {
    for (int i = 0; i < 8; ++i) acc[0][i] += acc[1][i];
    return tree8(acc[0]) + rest;
  }
  if constexpr (requires { blocks->m; }) return tree8(acc[0]) + minimum;
  return tree8(acc[0]);
}

// Integers of a super-block times the scales of its sub-blocks of `sub` elements, in lanes; `offset` is added to the
// integers.
template <class Block, int sub>
void scaled_lane_sums(const Block& block, const std::int8_t* a, int offset, int (&lanes)[8]) noexcept {
  std::int8_t q[kSuperBlock];
  quants(block, q);
  std::fill(std::begin(lanes), std::end(lanes), 0);
  for (int e = 0; e < kSuperBlock; ++e) lanes[e % 32 / 4] += sub_scale(block, e / sub) * (q[e] + offset) * a[e];
}

// Sum of minimum times activation sum over elements [begin, end) of a super-block.
template <class Block, int sub>
int min_sum(const Block& block, const std::int16_t* sums, int begin, int end) noexcept {
  int sum = 0;
  for (int g = begin / 16; g < end / 16; ++g) sum += sub_min(block, g * 16 / sub) * sums[g];
  return sum;
}

// Adds up `unit` elements at a time into one accumulator (repacked Q4_K and Q2_K; IQ4_XS with many rows).
template <class Block, int sub>
float dot_super_whole(const std::byte* row, std::int64_t cols, const Q8KRow& a, int unit) noexcept {
  const auto* blocks = reinterpret_cast<const Block*>(row);
  float acc = 0, minimum = 0;
  for (std::int64_t k = 0; k < cols / kSuperBlock; ++k) {
    std::int8_t q[kSuperBlock];
    quants(blocks[k], q);
    const float d = to_float(blocks[k].d) * a.scale[k];
    for (int begin = 0; begin < kSuperBlock; begin += unit) {
      int sum = 0;
      for (int e = begin; e < begin + unit; ++e) {
        sum += sub_scale(blocks[k], e / sub) * q[e] * a.quants[k * kSuperBlock + e];
      }
      acc = std::fma(static_cast<float>(sum), d, acc);
      if constexpr (requires { blocks[k].dmin; }) {
        const int mins = min_sum<Block, sub>(blocks[k], a.sums + k * 16, begin, begin + unit);
        minimum = std::fma(static_cast<float>(mins), to_float(blocks[k].dmin) * a.scale[k], minimum);
      }
    }
  }
  if constexpr (requires { blocks->dmin; }) return acc - minimum;
  return acc;
}

// The lane forms of the super-blocks (3.2).
template <class Block, int sub>
float dot_super(const std::byte* row, std::int64_t cols, const Q8KRow& a) noexcept {
  const auto* blocks = reinterpret_cast<const Block*>(row);
  constexpr bool is_q2 = std::is_same_v<Block, BlockQ2K>, is_q4 = std::is_same_v<Block, BlockQ4K>;
  constexpr bool is_q5 = std::is_same_v<Block, BlockQ5K>, is_q6 = std::is_same_v<Block, BlockQ6K>;
  float acc[8] = {}, mins[4] = {};
  for (std::int64_t k = 0; k < cols / kSuperBlock; ++k) {
    const Block& block = blocks[k];
    const std::int16_t* sums = a.sums + k * 16;
    int lanes[8];
    scaled_lane_sums<Block, sub>(block, a.quants + k * kSuperBlock, is_q6 ? 32 : 0, lanes);
    if constexpr (is_q6) {
      for (int g = 0; g < 16; ++g) lanes[g / 2] -= 32 * sub_scale(block, g) * sums[g];
    }
    if constexpr (requires { block.dmin; }) {
      const float d = -a.scale[k] * to_float(block.dmin);
      constexpr int chains = is_q2 ? 8 : is_q4 ? 4 : 1;
      float* chain = is_q2 ? acc : mins;
      for (int i = 0; i < chains; ++i) {
        const int begin = i * kSuperBlock / chains, end = begin + kSuperBlock / chains;
        chain[i] = std::fma(d, static_cast<float>(min_sum<Block, sub>(block, sums, begin, end)), chain[i]);
      }
    }
    const float d = a.scale[k] * to_float(block.d);
    for (int i = 0; i < 8; ++i) acc[i] = std::fma(d, static_cast<float>(lanes[i]), acc[i]);
  }
  if (is_q4) return tree8(acc) + ((mins[0] + mins[2]) + (mins[1] + mins[3]));
  if (is_q5) return tree8(acc) + mins[0];
  return tree8(acc);
}

float value(float x) noexcept {
  return x;
}
float value(half x) noexcept {
  return to_float(x);
}

// One accumulator of 16 lanes: F32 and F16 with several rows (3.4).
template <class T>
float dot_float_many(const T* w, const T* x, std::int64_t n) noexcept {
  float acc[16] = {};
  for (std::int64_t i = 0; i < n; ++i) acc[i % 16] = std::fma(value(w[i]), value(x[i]), acc[i % 16]);
  return tree16(acc);
}

// Four accumulators of 16 lanes (2.9, 3.4). Returns the sum; `done` elements are in it.
template <class T>
float dot_float_one(const T* w, const T* x, std::int64_t n, std::int64_t& done) noexcept {
  float acc[4][16] = {};
  done = n / 64 * 64;
  for (std::int64_t i = 0; i < done; ++i) {
    float& lane = acc[i % 64 / 16][i % 16];
    lane = std::fma(value(w[i]), value(x[i]), lane);
  }
  return tree4x16(acc);
}

float dot_f32(const MatmulShape& shape, const float* w, const float* x) noexcept {
  const std::int64_t n = shape.cols;
  if (shape.batch >= 2 && n % 16 == 0 && shape.rows % 4 == 0) return dot_float_many(w, x, n);
  std::int64_t i;
  float sum = dot_float_one(w, x, n, i);
  for (; i < n / 8 * 8; ++i) sum += w[i] * x[i];
  for (; i < n; ++i) sum = std::fma(w[i], x[i], sum);
  return sum;
}

float dot_f16(const MatmulShape& shape, const half* w, const half* x) noexcept {
  const std::int64_t n = shape.cols;
  if (shape.batch >= 2 && n % 16 == 0 && shape.rows % 4 == 0) return dot_float_many(w, x, n);
  std::int64_t i;
  double sum = dot_float_one(w, x, n, i);
  for (; i < n; ++i) sum += static_cast<double>(to_float(w[i]) * to_float(x[i]));
  return static_cast<float>(sum);
}

float dot_bf16(const MatmulShape& shape, const bfloat16* w, const bfloat16* x) noexcept {
  const std::int64_t n = shape.cols;
  const bool many = shape.batch >= 2 && n % 32 == 0;
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

}  // namespace

float reference_dot(DType type, const MatmulShape& shape, const std::byte* row, const CpuActivation& a,
                    int token) noexcept {
  const std::int64_t cols = shape.cols;
  const bool in_group_of_four = token < shape.batch / 4 * 4;
  switch (type) {
    case DType::f32:
      return dot_f32(shape, reinterpret_cast<const float*>(row), a.f32_row(token));
    case DType::f16:
      return dot_f16(shape, reinterpret_cast<const half*>(row), a.f16_row(token));
    case DType::bf16:
      return dot_bf16(shape, reinterpret_cast<const bfloat16*>(row), a.bf16_row(token));
    case DType::q4_0:
      return dot_blocks<BlockQ4_0>(row, cols, a.q8_row(token), shape.repacked ? Sum::whole : Sum::lanes);
    case DType::q4_1:
      return dot_blocks<BlockQ4_1>(row, cols, a.q8_row(token), Sum::lanes);
    case DType::q5_0:
      return dot_blocks<BlockQ5_0>(row, cols, a.q8_row(token), Sum::lanes);
    case DType::q5_1:
      return dot_blocks<BlockQ5_1>(row, cols, a.q8_row(token), Sum::lanes);
    case DType::q8_0:
      return dot_blocks<BlockQ8_0>(row, cols, a.q8_row(token), Sum::lanes);
    case DType::iq4_nl: {
      const Sum form = shape.repacked ? Sum::whole : shape.batch == 1 ? Sum::even_and_odd : Sum::lanes;
      return dot_blocks<BlockIq4Nl>(row, cols, a.q8_row(token), form);
    }
    case DType::q2_k:
      if (shape.repacked) {
        return dot_super_whole<BlockQ2K, 16>(row, cols, a.q8_k_row(token), in_group_of_four ? 128 : kSuperBlock);
      }
      return dot_super<BlockQ2K, 16>(row, cols, a.q8_k_row(token));
    case DType::q3_k:
      return dot_super<BlockQ3K, 16>(row, cols, a.q8_k_row(token));
    case DType::q4_k:
      if (shape.repacked) {
        return dot_super_whole<BlockQ4K, 32>(row, cols, a.q8_k_row(token), in_group_of_four ? 64 : kSuperBlock);
      }
      return dot_super<BlockQ4K, 32>(row, cols, a.q8_k_row(token));
    case DType::q5_k:
      return dot_super<BlockQ5K, 32>(row, cols, a.q8_k_row(token));
    case DType::q6_k:
      return dot_super<BlockQ6K, 16>(row, cols, a.q8_k_row(token));
    case DType::iq4_xs:
      if (shape.batch >= 8) return dot_super_whole<BlockIq4Xs, 32>(row, cols, a.q8_k_row(token), kSuperBlock);
      return dot_super<BlockIq4Xs, 32>(row, cols, a.q8_k_row(token));
  }
  return 0;
}

namespace {

std::int8_t round_to_int8(float x) noexcept {
  // nearbyint keeps ties to even; an infinite or undefined product (all values below 2^-121) is one of scale zero.
  return std::isfinite(x) ? static_cast<std::int8_t>(std::clamp(std::nearbyint(x), -128.0f, 127.0f)) : std::int8_t{0};
}

}  // namespace

void reference_quantize_q8(const float* x, std::int64_t n, const Q8Row& out) noexcept {
  for (std::int64_t k = 0; k < n / kBlock; ++k, x += kBlock) {
    float max = 0;
    for (int e = 0; e < kBlock; ++e) max = std::max(max, std::fabs(x[e]));
    const float d = max / 127.0f;
    const float inverse = max != 0 ? 127.0f / max : 0.0f;  // not 1 / d, which rounds twice
    std::int32_t sum = 0;
    for (int e = 0; e < kBlock; ++e) {
      const std::int8_t q = round_to_int8(x[e] * inverse);
      out.quants[k * kBlock + e] = q;
      sum += q;
    }
    out.scale[k] = to_float(to_half(d));
    out.scaled_sum[k] = to_float(to_half(d * static_cast<float>(sum)));
    out.sum[k] = sum;
  }
}

void reference_quantize_q8_k(const float* x, std::int64_t n, const Q8KRow& out) noexcept {
  for (std::int64_t k = 0; k < n / kSuperBlock; ++k, x += kSuperBlock) {
    float max = 0;  // with its sign; the first of several equally large ones
    for (int e = 0; e < kSuperBlock; ++e) {
      if (std::fabs(x[e]) > std::fabs(max)) max = x[e];
    }
    const float scale = max != 0 ? -127.0f / max : 0.0f;
    for (int g = 0; g < kSuperBlock / 16; ++g) {
      int sum = 0;
      for (int e = 16 * g; e < 16 * g + 16; ++e) {
        const std::int8_t q = round_to_int8(scale * x[e]);  // at most 127 in size but for the rounding of the scale
        out.quants[k * kSuperBlock + e] = q;
        sum += q;
      }
      out.sums[k * 16 + g] = static_cast<std::int16_t>(sum);
    }
    out.scale[k] = max != 0 ? 1.0f / scale : 0.0f;
  }
}

}  // namespace bankml
