#pragma once
// Sixteen floats in one AVX-512 register; contracts in simd_portable.hpp.
#include <cstdint>

#include "bankml/base/numeric.hpp"
#include "device/cpu/exp_constants.hpp"
#include "device/cpu/float_kernels.hpp"
#include "device/cpu/intrinsics.hpp"

#ifdef BANKML_SIMDE  // a test's build of the same kernels beside the library's own
#define BANKML_SIMD_AVX512 simd_avx512_simde
#else
#define BANKML_SIMD_AVX512 simd_avx512
#endif

namespace bankml::BANKML_SIMD_AVX512 {

#include "device/cpu/simd_x86.hpp"

using F32x16 = __m512;

inline constexpr int kProductRows = 6, kProductVectors = 4, kCellVectors = 4;

inline __m256 low_half(F32x16 x) {
  return _mm512_castps512_ps256(x);
}
inline __m256 high_half(F32x16 x) {
  return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1));
}
inline F32x16 join(__m256 lo, __m256 hi) {
  return _mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(_mm512_castps256_ps512(lo)), _mm256_castps_pd(hi), 1));
}

#ifdef BANKML_SIMDE  // SIMDe lacks some conversions in 512 bits, and its scaling rounds twice
inline F32x16 widen16(__m256i x) {
  return join(_mm256_cvtph_ps(_mm256_castsi256_si128(x)), _mm256_cvtph_ps(_mm256_extracti128_si256(x, 1)));
}
inline __m256i narrow16(F32x16 x) {
  return _mm256_set_m128i(_mm256_cvtps_ph(high_half(x), _MM_FROUND_TO_NEAREST_INT),
                          _mm256_cvtps_ph(low_half(x), _MM_FROUND_TO_NEAREST_INT));
}
inline float reduce_max(F32x16 a) {
  float lanes[16], r;
  _mm512_storeu_ps(lanes, a);
  r = lanes[0];
  for (const float x : lanes) r = x > r ? x : r;
  return r;
}
inline F32x16 scale_by_power(F32x16 a, F32x16 z) {
  return join(scale_by_power8(low_half(a), low_half(z)), scale_by_power8(high_half(a), high_half(z)));
}
#else
inline F32x16 widen16(__m256i x) {
  return _mm512_cvtph_ps(x);
}
inline __m256i narrow16(F32x16 x) {
  return _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
}
inline float reduce_max(F32x16 a) {
  return _mm512_reduce_max_ps(a);
}
inline F32x16 scale_by_power(F32x16 a, F32x16 z) {
  return _mm512_scalef_ps(a, _mm512_sub_ps(z, _mm512_set1_ps(0x1.8p23f)));
}
#endif

inline F32x16 broadcast(float x) {
  return _mm512_set1_ps(x);
}
inline F32x16 load(const float* p) {
  return _mm512_loadu_ps(p);
}
inline void store(float* p, F32x16 x) {
  _mm512_storeu_ps(p, x);
}
inline F32x16 load_half(const half* p) {
  return widen16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline void store_half(half* p, F32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow16(x));
}
inline F32x16 load_int8(const std::int8_t* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return join(_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)),
              _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8))));
}

inline F32x16 add(F32x16 a, F32x16 b) {
  return _mm512_add_ps(a, b);
}
inline F32x16 sub(F32x16 a, F32x16 b) {
  return _mm512_sub_ps(a, b);
}
inline F32x16 mul(F32x16 a, F32x16 b) {
  return _mm512_mul_ps(a, b);
}
inline F32x16 div(F32x16 a, F32x16 b) {
  return _mm512_div_ps(a, b);
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return _mm512_max_ps(a, b);
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return _mm512_min_ps(a, b);
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return _mm512_fmadd_ps(a, b, c);
}
inline F32x16 fnma(F32x16 a, F32x16 b, F32x16 c) {
  return _mm512_fnmadd_ps(a, b, c);
}
inline F32x16 fmaddsub(F32x16 a, F32x16 b, F32x16 c) {
  return _mm512_mask_blend_ps(0x5555, _mm512_fmadd_ps(a, b, c), _mm512_fmsub_ps(a, b, c));
}
inline F32x16 round_to_half(F32x16 a) {
  return widen16(narrow16(a));
}
inline F32x16 select(std::uint16_t bits, F32x16 a, F32x16 b) {
  return _mm512_mask_blend_ps(bits, b, a);
}

inline F32x16 duplicate_even(F32x16 a) {
  return join(_mm256_moveldup_ps(low_half(a)), _mm256_moveldup_ps(high_half(a)));
}
inline F32x16 duplicate_odd(F32x16 a) {
  return join(_mm256_movehdup_ps(low_half(a)), _mm256_movehdup_ps(high_half(a)));
}
inline F32x16 swap_pairs(F32x16 a) {
  return join(_mm256_permute_ps(low_half(a), 0xb1), _mm256_permute_ps(high_half(a), 0xb1));
}
inline void load_pairs(const float* p, F32x16& even, F32x16& odd) {
  const F32x16 a = load(p), b = load(p + 16);
  const __m512i even_lanes = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odd_lanes = _mm512_setr_epi32(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
  even = _mm512_permutex2var_ps(a, even_lanes, b);
  odd = _mm512_permutex2var_ps(a, odd_lanes, b);
}

inline F32x8 fold(F32x16 a) {
  return _mm256_add_ps(low_half(a), high_half(a));
}
inline F32x16 scale_by_small_power(F32x16 a, F32x16 z) {
  return scale_by_power(a, z);
}

inline F32x16 expf_of_nonpositive(F32x16 x) {
  return join(expf_of_nonpositive8(low_half(x)), expf_of_nonpositive8(high_half(x)));
}

}  // namespace bankml::BANKML_SIMD_AVX512
