#pragma once
// Sixteen floats as plain C++. The same names, and the same bits, as in simd_avx2.hpp and simd_avx512.hpp; which of the
// three a kernel sees is decided by the file that includes it (float_kernels_*.cpp).
#include <cstdint>
#include <cstring>

#include "bankml/base/numeric.hpp"
#include "device/cpu/exp_constants.hpp"

namespace bankml::simd_portable {

#define BANKML_LANES(count) for (int l = 0; l < (count); ++l)

struct F32x8 {
  float lane[8];
};
struct F32x16 {
  float lane[16];
};

// Register tiles of the kernels: rows and vectors of a block of a matrix product; vectors of a sum over cells.
inline constexpr int kProductRows = 4, kProductVectors = 1, kCellVectors = 2;

inline F32x16 broadcast(float x) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = x;
  return r;
}
inline F32x16 load(const float* p) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = p[l];
  return r;
}
inline void store(float* p, const F32x16& x) {
  BANKML_LANES(16) p[l] = x.lane[l];
}
inline F32x16 load_half(const half* p) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = to_float(p[l]);
  return r;
}
inline void store_half(half* p, const F32x16& x) {
  BANKML_LANES(16) p[l] = to_half(x.lane[l]);
}
inline F32x16 load_int8(const std::int8_t* p) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = static_cast<float>(p[l]);
  return r;
}

inline F32x16 add(const F32x16& a, const F32x16& b) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = a.lane[l] + b.lane[l];
  return r;
}
inline F32x16 sub(const F32x16& a, const F32x16& b) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = a.lane[l] - b.lane[l];
  return r;
}
inline F32x16 mul(const F32x16& a, const F32x16& b) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = a.lane[l] * b.lane[l];
  return r;
}
inline F32x16 div(const F32x16& a, const F32x16& b) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = a.lane[l] / b.lane[l];
  return r;
}
inline F32x16 max(const F32x16& a, const F32x16& b) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l];
  return r;
}
inline F32x16 min(const F32x16& a, const F32x16& b) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = a.lane[l] < b.lane[l] ? a.lane[l] : b.lane[l];
  return r;
}
inline F32x16 fma(const F32x16& a, const F32x16& b, const F32x16& c) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = __builtin_fmaf(a.lane[l], b.lane[l], c.lane[l]);
  return r;
}
// c - a * b
inline F32x16 fnma(const F32x16& a, const F32x16& b, const F32x16& c) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = __builtin_fmaf(-a.lane[l], b.lane[l], c.lane[l]);
  return r;
}
// a * b - c in even lanes, a * b + c in odd ones
inline F32x16 fmaddsub(const F32x16& a, const F32x16& b, const F32x16& c) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = __builtin_fmaf(a.lane[l], b.lane[l], l % 2 == 0 ? -c.lane[l] : c.lane[l]);
  return r;
}
// Rounded to half and widened again.
inline F32x16 round_to_half(const F32x16& a) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = to_float(to_half(a.lane[l]));
  return r;
}
// Lane l of a where bit l is set, of b elsewhere.
inline F32x16 select(std::uint16_t bits, const F32x16& a, const F32x16& b) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = (bits >> l & 1) != 0 ? a.lane[l] : b.lane[l];
  return r;
}
inline float reduce_max(const F32x16& a) {
  float r = a.lane[0];
  BANKML_LANES(16) r = a.lane[l] > r ? a.lane[l] : r;
  return r;
}

// Pairs (x0, x1): both lanes x0; both x1; exchanged.
inline F32x16 duplicate_even(const F32x16& a) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = a.lane[l & ~1];
  return r;
}
inline F32x16 duplicate_odd(const F32x16& a) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = a.lane[l | 1];
  return r;
}
inline F32x16 swap_pairs(const F32x16& a) {
  F32x16 r;
  BANKML_LANES(16) r.lane[l] = a.lane[l ^ 1];
  return r;
}
// 32 floats at p: those at even places, those at odd ones.
inline void load_pairs(const float* p, F32x16& even, F32x16& odd) {
  BANKML_LANES(16) even.lane[l] = p[2 * l], odd.lane[l] = p[2 * l + 1];
}

// The first step of the sixteen-lane sum: lanes l and l + 8 added.
inline F32x8 fold(const F32x16& a) {
  F32x8 r;
  BANKML_LANES(8) r.lane[l] = a.lane[l] + a.lane[l + 8];
  return r;
}
// out[i] = the eight-lane sum of v[i] (docs/arithmetic.md, 1).
inline void sum_lanes_of_8(float* out, const F32x8 (&v)[8]) {
  for (int i = 0; i < 8; ++i) {
    const float* a = v[i].lane;
    out[i] = ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
  }
}
// rows[i][l] becomes rows[l][i].
inline void transpose(F32x8 (&rows)[8]) {
  for (int i = 0; i < 8; ++i) {
    for (int l = 0; l < i; ++l) {
      const float t = rows[i].lane[l];
      rows[i].lane[l] = rows[l].lane[i];
      rows[l].lane[i] = t;
    }
  }
}
inline F32x8 zero8() {
  return F32x8{};
}
inline F32x8 load8(const float* p) {
  F32x8 r;
  BANKML_LANES(8) r.lane[l] = p[l];
  return r;
}
inline void store8(float* p, const F32x8& x) {
  BANKML_LANES(8) p[l] = x.lane[l];
}
inline F32x8 load_half8(const half* p) {
  F32x8 r;
  BANKML_LANES(8) r.lane[l] = to_float(p[l]);
  return r;
}
// c + d * (lane l: sum of a_i b_i, i = 4l..4l+3), the sum being exact.
inline F32x8 fma_dot4(float d, const std::int8_t* a, const std::int8_t* b, const F32x8& c) {
  F32x8 r;
  BANKML_LANES(8) {
    int sum = 0;
    for (int i = 4 * l; i < 4 * l + 4; ++i) sum += a[i] * b[i];
    r.lane[l] = __builtin_fmaf(d, static_cast<float>(sum), c.lane[l]);
  }
  return r;
}

inline float widen(half h) {
  return to_float(h);
}
inline half narrow(float x) {
  return to_half(x);
}

// a * 2^n with one rounding, z = n + 0x1.8p23, |n| <= 252.
inline F32x16 scale_by_power(const F32x16& a, const F32x16& z) {
  F32x16 r;
  BANKML_LANES(16) {
    std::int32_t bits;
    std::memcpy(&bits, &z.lane[l], sizeof bits);
    const std::int32_t n = bits - kMagicBits, first = n >> 1;
    const std::int32_t factor_bits[2] = {(first + 127) << 23, (n - first + 127) << 23};
    float factor[2];
    std::memcpy(factor, factor_bits, sizeof factor);
    r.lane[l] = a.lane[l] * factor[0] * factor[1];  // the first product is exact
  }
  return r;
}

// The same for n <= 63.
inline F32x16 scale_by_small_power(const F32x16& a, const F32x16& z) {
  return scale_by_power(a, z);
}

// glibc's expf of x in [-106, 0] (docs/arithmetic.md, 6).
inline F32x16 expf_of_nonpositive(const F32x16& x) {
  F32x16 y;
  BANKML_LANES(16) {
    const double wide = static_cast<double>(x.lane[l]);
    const double shifted = __builtin_fma(kExpScale, wide, kExpShift);
    const double r = __builtin_fma(kExpScale, wide, -(shifted - kExpShift));
    std::uint64_t bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    const std::uint64_t power_bits = kExpTable[bits % 32] + (bits << 47);
    double power;
    std::memcpy(&power, &power_bits, sizeof power);
    const double p = __builtin_fma(__builtin_fma(kExpC0, r, kExpC1), r * r, __builtin_fma(kExpC2, r, 1.0));
    y.lane[l] = static_cast<float>(p * power);
  }
  return y;
}

#undef BANKML_LANES

}  // namespace bankml::simd_portable
