// Eight floats in one AVX register: the part that the AVX2 and the AVX-512 kernels share. No include guard and no
// namespace of its own: simd_avx2.hpp and simd_avx512.hpp include it inside theirs, so that each set of kernels is
// compiled with its own flags only.

using F32x8 = __m256;

inline F32x8 zero8() {
  return _mm256_setzero_ps();
}
inline F32x8 load8(const float* p) {
  return _mm256_loadu_ps(p);
}
inline void store8(float* p, F32x8 x) {
  _mm256_storeu_ps(p, x);
}
inline F32x8 load_half8(const half* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
inline float widen(half h) {
  return _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(h.bits)));
}
inline half narrow(float x) {
  return half{static_cast<std::uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0))};
}

// out[i] = the eight-lane sum of v[i] (docs/arithmetic.md, 1), two vectors a step in one register.
inline void sum_lanes_of_8(float* out, const F32x8 (&v)[8]) {
  __m256 four[4], two[2];
  BANKML_UNROLL
  for (int i = 0; i < 4; ++i) {
    four[i] = _mm256_add_ps(_mm256_permute2f128_ps(v[i], v[i + 4], 0x20), _mm256_permute2f128_ps(v[i], v[i + 4], 0x31));
  }
  BANKML_UNROLL
  for (int i = 0; i < 2; ++i) {
    const __m256d a = _mm256_castps_pd(four[2 * i]), b = _mm256_castps_pd(four[2 * i + 1]);
    two[i] = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(a, b)), _mm256_castpd_ps(_mm256_unpackhi_pd(a, b)));
  }
  _mm256_storeu_ps(out,
                   _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88), _mm256_shuffle_ps(two[0], two[1], 0xdd)));
}

// rows[i][l] becomes rows[l][i].
inline void transpose(F32x8 (&rows)[8]) {
  __m256 pairs[8], quads[8];
  BANKML_UNROLL
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
  }
  BANKML_UNROLL
  for (int i = 0; i < 8; i += 4) {
    BANKML_UNROLL
    for (int j = 0; j < 2; ++j) {
      quads[i + 2 * j] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0x44);
      quads[i + 2 * j + 1] = _mm256_shuffle_ps(pairs[i + j], pairs[i + j + 2], 0xee);
    }
  }
  BANKML_UNROLL
  for (int i = 0; i < 4; ++i) {
    rows[i] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x20);
    rows[i + 4] = _mm256_permute2f128_ps(quads[i], quads[i + 4], 0x31);
  }
}

// c + d * (lane l: sum of a_i b_i, i = 4l..4l+3), the sum being exact. Integers from -127 to 127: no sum of two
// products leaves 16 bits.
inline F32x8 fma_dot4(float d, const std::int8_t* a, const std::int8_t* b, F32x8 c) {
  const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(a));
  const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(b));
  const __m256i pairs = _mm256_maddubs_epi16(_mm256_sign_epi8(x, x), _mm256_sign_epi8(y, x));
  const __m256i sums = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  return _mm256_fmadd_ps(_mm256_set1_ps(d), _mm256_cvtepi32_ps(sums), c);
}

// a * 2^n with one rounding, z = n + 0x1.8p23, |n| <= 252.
inline __m256 scale_by_power8(__m256 a, __m256 z) {
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(z), _mm256_set1_epi32(kMagicBits));
  const __m256i first = _mm256_srai_epi32(n, 1), second = _mm256_sub_epi32(n, first);
  const __m256i one = _mm256_set1_epi32(127 << 23);
  const __m256 factor = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(first, 23), one));
  const __m256 rest = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(second, 23), one));
  return _mm256_mul_ps(_mm256_mul_ps(a, factor), rest);  // the first product is exact
}
// The same for -190 <= n <= 63, which one shift prepares: 2^(n + 64) is no subnormal number.
inline __m256 scale_by_small_power8(__m256 a, __m256 z) {
  const __m256i power = _mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(z), 23), _mm256_set1_epi32(kPowerBias));
  return _mm256_mul_ps(_mm256_mul_ps(a, _mm256_castsi256_ps(power)), _mm256_set1_ps(0x1p-64f));
}

// glibc's expf of four x in [-106, 0] (docs/arithmetic.md, 6).
inline __m128 expf_of_nonpositive4(__m128 x) {
  const __m256d scale = _mm256_set1_pd(kExpScale), shift = _mm256_set1_pd(kExpShift);
  const __m256d wide = _mm256_cvtps_pd(x);
  const __m256d shifted = _mm256_fmadd_pd(scale, wide, shift);
  const __m256d r = _mm256_fmsub_pd(scale, wide, _mm256_sub_pd(shifted, shift));
  const __m256i bits = _mm256_castpd_si256(shifted);
  const __m256i table = _mm256_i64gather_epi64(reinterpret_cast<const long long*>(kExpTable),
                                               _mm256_and_si256(bits, _mm256_set1_epi64x(31)), 8);
  const __m256d power = _mm256_castsi256_pd(_mm256_add_epi64(table, _mm256_slli_epi64(bits, 47)));
  const __m256d high = _mm256_fmadd_pd(_mm256_set1_pd(kExpC0), r, _mm256_set1_pd(kExpC1));
  const __m256d low = _mm256_fmadd_pd(_mm256_set1_pd(kExpC2), r, _mm256_set1_pd(1.0));
  return _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_fmadd_pd(high, _mm256_mul_pd(r, r), low), power));
}
inline F32x8 expf_of_nonpositive8(F32x8 x) {
  return _mm256_set_m128(expf_of_nonpositive4(_mm256_extractf128_ps(x, 1)),
                         expf_of_nonpositive4(_mm256_castps256_ps128(x)));
}
