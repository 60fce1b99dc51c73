#pragma once
// The x86 intrinsics. Under BANKML_SIMDE they are SIMDe's (portable code under the same names), so that the AVX-512
// kernels can be tested on a machine without it.
#ifdef BANKML_SIMDE
#define SIMDE_ENABLE_NATIVE_ALIASES
#include <simde/x86/avx512.h>
#include <simde/x86/f16c.h>
#include <simde/x86/fma.h>
// SIMDe 0.7 gives this one alias the parameters of another intrinsic.
#undef _mm512_madd_epi16
#define _mm512_madd_epi16(a, b) simde_mm512_madd_epi16(a, b)
// And it has no such conversion.
inline __m512 bankml_simde_mm512_cvtepi32_ps(__m512i a) {
  const __m256 low = _mm256_cvtepi32_ps(_mm512_castsi512_si256(a));
  const __m256 high = _mm256_cvtepi32_ps(_mm512_extracti64x4_epi64(a, 1));
  const __m512i both = _mm512_castsi256_si512(_mm256_castps_si256(low));
  return _mm512_castsi512_ps(_mm512_inserti64x4(both, _mm256_castps_si256(high), 1));
}
#define _mm512_cvtepi32_ps(a) bankml_simde_mm512_cvtepi32_ps(a)
#else
#include <immintrin.h>
#endif
