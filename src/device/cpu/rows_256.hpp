#pragma once
// What the AVX2 and AVX-512 kernels share: eight output rows, or eight lanes of one, in a 256-bit register. The
// anonymous namespace keeps code compiled for one instruction set out of the other's objects.
#include <cstdint>

#include "bankml/base/numeric.hpp"
#include "base/blocks.hpp"
#include "device/cpu/intrinsics.hpp"
#include "device/cpu/kernels.hpp"

namespace bankml {
namespace {

inline __m256i load256(const void* p) noexcept {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

inline __m256i broadcast_dword(const void* p) noexcept {
  std::int32_t dword;
  __builtin_memcpy(&dword, p, sizeof dword);
  return _mm256_set1_epi32(dword);
}

// T8 of docs/arithmetic.md, section 1.
inline float tree8(__m256 a) noexcept {
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

// T8 of eight registers at once: lane i is the sum of a[i].
inline __m256 tree8(const __m256 (&a)[8]) noexcept {
  __m256 b[4];  // [a[i] | a[i + 4]], halves added
  for (int i = 0; i < 4; ++i) {
    b[i] = _mm256_add_ps(_mm256_permute2f128_ps(a[i], a[i + 4], 0x20), _mm256_permute2f128_ps(a[i], a[i + 4], 0x31));
  }
  __m256 c[2];  // per half: two of a[2i], two of a[2i + 1]
  for (int i = 0; i < 2; ++i) {
    c[i] = _mm256_add_ps(_mm256_shuffle_ps(b[2 * i], b[2 * i + 1], _MM_SHUFFLE(1, 0, 1, 0)),
                         _mm256_shuffle_ps(b[2 * i], b[2 * i + 1], _MM_SHUFFLE(3, 2, 3, 2)));
  }
  return _mm256_add_ps(_mm256_shuffle_ps(c[0], c[1], _MM_SHUFFLE(2, 0, 2, 0)),
                       _mm256_shuffle_ps(c[0], c[1], _MM_SHUFFLE(3, 1, 3, 1)));
}

// The same of integers, where the order is free.
inline __m256i sum8(const __m256i (&a)[8]) noexcept {
  __m256i b[4];
  for (int i = 0; i < 4; ++i) {
    b[i] = _mm256_add_epi32(_mm256_permute2x128_si256(a[i], a[i + 4], 0x20),
                            _mm256_permute2x128_si256(a[i], a[i + 4], 0x31));
  }
  return _mm256_hadd_epi32(_mm256_hadd_epi32(b[0], b[1]), _mm256_hadd_epi32(b[2], b[3]));
}

// Shuffles that bring scale 2j of 16, or j of 8, to the upper byte of each of the first eight 16-bit numbers, and scale
// 2j + 1, or j again, to that of the others: a shift brings it down with its sign.
template <int subs>
struct ScalePlaces {
  alignas(32) std::uint8_t of[8][32] = {};
  constexpr ScalePlaces() {
    for (int j = 0; j < 8; ++j) {
      for (int i = 0; i < 32; ++i) {
        const int scale = subs == 8 ? j : 2 * j + i / 16;
        of[j][i] = i % 2 == 0 ? 0x80 : static_cast<std::uint8_t>(scale);
      }
    }
  }
};
template <int subs>
constexpr ScalePlaces<subs> kScalePlaces;

// Scales 2j and 2j + 1 of the 16 at p, or scale j of 8 twice, each for eight 16-bit numbers.
template <int subs>
inline __m256i scales_of_row(const std::uint8_t* p, int j) noexcept {
  const auto* bytes = reinterpret_cast<const __m128i*>(p);
  const __m256i row = _mm256_broadcastsi128_si256(subs == 8 ? _mm_loadl_epi64(bytes) : _mm_loadu_si128(bytes));
  return _mm256_srai_epi16(_mm256_shuffle_epi8(row, load256(kScalePlaces<subs>.of[j])), 8);
}

struct Rows256 {
  using Rows = __m256;
  using IntRows = __m256i;

  static Rows zero() noexcept { return _mm256_setzero_ps(); }
  static Rows broadcast(float x) noexcept { return _mm256_set1_ps(x); }
  static Rows load(const float* p) noexcept { return _mm256_loadu_ps(p); }
  static void store(float* p, Rows a) noexcept { _mm256_storeu_ps(p, a); }
  static Rows widen(const void* halves) noexcept {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(halves)));
  }
  static Rows widen_e8m0(const void* bytes) noexcept {
    const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i*>(bytes)));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(subnormal, normal, _mm256_cmpgt_epi32(e, _mm256_set1_epi32(1))));
  }
  static Rows add(Rows a, Rows b) noexcept { return _mm256_add_ps(a, b); }
  static Rows sub(Rows a, Rows b) noexcept { return _mm256_sub_ps(a, b); }
  static Rows mul(Rows a, Rows b) noexcept { return _mm256_mul_ps(a, b); }
  static Rows fma(Rows a, Rows b, Rows c) noexcept { return _mm256_fmadd_ps(a, b, c); }

  // Of four rows.
  using Four = __m128;
  static Four broadcast_four(float x) noexcept { return _mm_set1_ps(x); }
  static Four load_four(const float* p) noexcept { return _mm_loadu_ps(p); }
  static void store(float* p, Four a) noexcept { _mm_storeu_ps(p, a); }
  static Four add(Four a, Four b) noexcept { return _mm_add_ps(a, b); }
  static Four mul(Four a, Four b) noexcept { return _mm_mul_ps(a, b); }
  // T8 of four registers at once. Blends are cheaper than shuffles, so halves may be added in either order.
  static Four trees4(const Rows (&a)[4]) noexcept {
    __m256 b[2];  // halves added: [a[0] | a[1]], [a[2] | a[3]]
    for (int i = 0; i < 2; ++i) {
      const __m256 x = a[2 * i], y = a[2 * i + 1];
      b[i] = _mm256_add_ps(_mm256_blend_ps(x, y, 0xf0), _mm256_permute2f128_ps(x, y, 0x21));
    }
    // Two sums of each: [a[0], a[2] | a[1], a[3]].
    const __m256 c =
        _mm256_add_ps(_mm256_blend_ps(b[0], b[1], 0xcc), _mm256_shuffle_ps(b[0], b[1], _MM_SHUFFLE(1, 0, 3, 2)));
    const __m256 d = _mm256_add_ps(c, _mm256_movehdup_ps(c));
    return _mm_blend_ps(_mm256_castps256_ps128(d), _mm_moveldup_ps(_mm256_extractf128_ps(d, 1)), 0xa);
  }

  static IntRows int_zero() noexcept { return _mm256_setzero_si256(); }
  static IntRows int_broadcast(std::int32_t x) noexcept { return _mm256_set1_epi32(x); }
  static IntRows int_add(IntRows a, IntRows b) noexcept { return _mm256_add_epi32(a, b); }
  static IntRows int_sub(IntRows a, IntRows b) noexcept { return _mm256_sub_epi32(a, b); }
  static Rows to_float(IntRows a) noexcept { return _mm256_cvtepi32_ps(a); }

  // Of 16 bytes in pairs, one pair for each row: the products with two 16-bit numbers, added up.
  static IntRows pair_dot(__m256i pairs, const std::int16_t* two) noexcept {
    return _mm256_madd_epi16(pairs, broadcast_dword(two));
  }
  static __m256i byte_pairs(const std::uint8_t* p) noexcept {
    return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static __m256i low_nibbles(__m256i pairs) noexcept { return _mm256_and_si256(pairs, _mm256_set1_epi16(15)); }
  static __m256i high_nibbles(__m256i pairs) noexcept { return _mm256_srli_epi16(pairs, 4); }

  // Codes of column `c` of 32 elements of eight rows (packing.hpp).
  template <int bits>
  static __m256i column(const std::uint8_t* piece, int c) noexcept {
    const __m256i codes = _mm256_srli_epi16(load256(piece + c % bits * 32), c / bits * bits);
    return _mm256_and_si256(codes, _mm256_set1_epi8((1 << bits) - 1));
  }

  // Columns `unit` and `unit` + 4: lanes whose sums are the first that the tree adds.
  struct TwoColumns {
    __m256i a, b;
  };
  template <int bits>
  static TwoColumns two_columns(const std::uint8_t* piece, int unit) noexcept {
    static_assert(bits == 4 || bits == 8);
    const __m256i v = load256(piece + unit * 32);
    if constexpr (bits == 8) return {v, load256(piece + (unit + 4) * 32)};
    const __m256i mask = _mm256_set1_epi8(15);
    return {_mm256_and_si256(v, mask), _mm256_and_si256(_mm256_srli_epi16(v, 4), mask)};
  }
  // Gives codes of four bits their fifth, from the vector that has one of every column.
  static TwoColumns with_fifth_bit(TwoColumns w, const std::uint8_t* plane, int unit) noexcept {
    const __m256i v = load256(plane), fifth = _mm256_set1_epi8(16);
    const __m256i a = _mm256_sll_epi16(v, _mm_cvtsi32_si128(4 - unit)),
                  b = _mm256_srl_epi16(v, _mm_cvtsi32_si128(unit));
    return {_mm256_or_si256(w.a, _mm256_and_si256(a, fifth)), _mm256_or_si256(w.b, _mm256_and_si256(b, fifth))};
  }
  static __m256i look_up(const std::int8_t* table, __m256i codes) noexcept {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), codes);
  }
};

// Quantisation (docs/arithmetic.md, 2.3 and 3.1).

inline float max8(__m256 a) noexcept {
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

inline __m256 absolute(__m256 a) noexcept {
  return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a);
}

// RNE(x * factor) of 32 floats as bytes, saturated.
inline __m256i round_to_int8(const float* x, float factor) noexcept {
  const __m256 f = _mm256_set1_ps(factor);
  __m256i q[4];
  for (int i = 0; i < 4; ++i) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(f, _mm256_loadu_ps(x + 8 * i)));
  const __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  // The packs work on halves of the registers: put groups of four back in order.
  return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// Sums of groups of four bytes.
inline __m256i sums_of_four(__m256i bytes) noexcept {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(_mm256_set1_epi8(1), bytes), _mm256_set1_epi16(1));
}

inline std::int32_t sum4(__m128i a) noexcept {
  const __m128i b = _mm_add_epi32(a, _mm_unpackhi_epi64(a, a));
  return _mm_cvtsi128_si32(_mm_add_epi32(b, _mm_shuffle_epi32(b, 1)));
}

inline float round_to_half(float x) noexcept {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtps_ph(_mm_set_ss(x), 0)));
}

// n / max, or 0 where max is 0 or so small that the quotient is infinite: the scale of such a block is 0 too.
inline float quotient(float n, float max) noexcept {
  const float q = n / max;
  return max != 0 && __builtin_fabsf(q) <= 0x1.fffffep127f ? q : 0.0f;
}

inline void simd_round_to_f16(const float* x, std::int64_t n, float* out) {
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm256_cvtps_ph(_mm256_loadu_ps(x + i), 0)));
  for (; i < n; ++i) out[i] = to_float(to_half(x[i]));
}

inline void simd_quantize_q8(const float* x, std::int64_t n, const Q8Row& out) {
  for (std::int64_t k = 0; k < n / kBlock; ++k, x += kBlock) {
    __m256 largest = absolute(_mm256_loadu_ps(x));
    for (int i = 8; i < kBlock; i += 8) largest = _mm256_max_ps(largest, absolute(_mm256_loadu_ps(x + i)));
    const float max = max8(largest);
    const float d = max / 127.0f;
    const float inverse = quotient(127.0f, max);
    const __m256i q = round_to_int8(x, inverse);
    const __m256i sums = sums_of_four(q);
    const std::int32_t sum = sum4(_mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1)));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.quants + k * kBlock), q);
    out.scale[k] = round_to_half(d);
    out.scaled_sum[k] = round_to_half(d * static_cast<float>(sum));
    out.sum[k] = sum;
  }
}

inline void simd_quantize_q8_k(const float* x, std::int64_t n, const Q8KRow& out) {
  for (std::int64_t k = 0; k < n / kSuperBlock; ++k, x += kSuperBlock) {
    __m256 largest = _mm256_setzero_ps();
    for (int i = 0; i < kSuperBlock; i += 8) largest = _mm256_max_ps(largest, absolute(_mm256_loadu_ps(x + i)));
    const float size = max8(largest);
    float max = 0;  // the first element of that size, with its sign
    for (int i = 0; i < kSuperBlock; ++i) {
      if (__builtin_fabsf(x[i]) == size) {
        max = x[i];
        break;
      }
    }
    const float scale = quotient(-127.0f, max);
    for (int i = 0; i < kSuperBlock; i += 32) {
      const __m256i q = round_to_int8(x + i, scale);
      const __m256i sums = sums_of_four(q);
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.quants + k * kSuperBlock + i), q);
      out.sums[k * 16 + i / 16] = static_cast<std::int16_t>(sum4(_mm256_castsi256_si128(sums)));
      out.sums[k * 16 + i / 16 + 1] = static_cast<std::int16_t>(sum4(_mm256_extracti128_si256(sums, 1)));
    }
    out.scale[k] = quotient(1.0f, scale);
  }
}

}  // namespace
}  // namespace bankml
