#pragma once
// Sixteen floats in two AVX registers; contracts in simd_portable.hpp.
#include <cstdint>

#include "bankml/base/numeric.hpp"
#include "device/cpu/exp_constants.hpp"
#include "device/cpu/float_kernels.hpp"
#include "device/cpu/intrinsics.hpp"

namespace bankml::simd_avx2 {

#include "device/cpu/simd_x86.hpp"

struct F32x16 {
  __m256 lo, hi;
};

inline constexpr int kProductRows = 3, kProductVectors = 2, kCellVectors = 2;

inline F32x16 broadcast(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
inline F32x16 load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
inline void store(float* p, F32x16 x) {
  _mm256_storeu_ps(p, x.lo);
  _mm256_storeu_ps(p + 8, x.hi);
}
inline F32x16 load_half(const half* p) {
  return {load_half8(p), load_half8(p + 8)};
}
inline void store_half(half* p, F32x16 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
}
inline F32x16 load_int8(const std::int8_t* p) {
  const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(x)), _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(x, 8)))};
}

inline F32x16 add(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
inline F32x16 sub(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
inline F32x16 mul(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline F32x16 div(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
inline F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
inline F32x16 min(F32x16 a, F32x16 b) {
  return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)};
}
inline F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 fnma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
inline F32x16 fmaddsub(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmaddsub_ps(a.lo, b.lo, c.lo), _mm256_fmaddsub_ps(a.hi, b.hi, c.hi)};
}
inline __m256 round_to_half8(__m256 x) {
  return _mm256_cvtph_ps(_mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}
inline F32x16 round_to_half(F32x16 a) {
  return {round_to_half8(a.lo), round_to_half8(a.hi)};
}

inline __m256 select8(int bits, __m256 a, __m256 b) {
  const __m256i lanes = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
  const __m256i chosen = _mm256_cmpeq_epi32(_mm256_and_si256(_mm256_set1_epi32(bits), lanes), lanes);
  return _mm256_blendv_ps(b, a, _mm256_castsi256_ps(chosen));
}
inline F32x16 select(std::uint16_t bits, F32x16 a, F32x16 b) {
  return {select8(bits & 0xff, a.lo, b.lo), select8(bits >> 8, a.hi, b.hi)};
}
inline float reduce_max(F32x16 a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline F32x16 duplicate_even(F32x16 a) {
  return {_mm256_moveldup_ps(a.lo), _mm256_moveldup_ps(a.hi)};
}
inline F32x16 duplicate_odd(F32x16 a) {
  return {_mm256_movehdup_ps(a.lo), _mm256_movehdup_ps(a.hi)};
}
inline F32x16 swap_pairs(F32x16 a) {
  return {_mm256_permute_ps(a.lo, 0xb1), _mm256_permute_ps(a.hi, 0xb1)};
}
inline void load_pairs8(const float* p, __m256& even, __m256& odd) {
  const __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
  const __m256 lo = _mm256_permute2f128_ps(a, b, 0x20), hi = _mm256_permute2f128_ps(a, b, 0x31);
  even = _mm256_shuffle_ps(lo, hi, 0x88);
  odd = _mm256_shuffle_ps(lo, hi, 0xdd);
}
inline void load_pairs(const float* p, F32x16& even, F32x16& odd) {
  load_pairs8(p, even.lo, odd.lo);
  load_pairs8(p + 16, even.hi, odd.hi);
}

inline F32x8 fold(F32x16 a) {
  return _mm256_add_ps(a.lo, a.hi);
}

inline F32x16 scale_by_power(F32x16 a, F32x16 z) {
  return {scale_by_power8(a.lo, z.lo), scale_by_power8(a.hi, z.hi)};
}
inline F32x16 scale_by_small_power(F32x16 a, F32x16 z) {
  return {scale_by_small_power8(a.lo, z.lo), scale_by_small_power8(a.hi, z.hi)};
}

inline F32x16 expf_of_nonpositive(F32x16 x) {
  return {expf_of_nonpositive8(x.lo), expf_of_nonpositive8(x.hi)};
}

}  // namespace bankml::simd_avx2
