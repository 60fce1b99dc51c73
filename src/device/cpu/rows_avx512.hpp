#pragma once
// The operations of the kernels in AVX-512 with VNNI: two weight rows are the halves of one register.
#include "device/cpu/rows_256.hpp"

namespace bankml {
namespace {

struct Simd : Rows256 {
  using Rows256::add;
  using Rows256::fma;

  using Bytes = __m512i;  // codes or integers of 32 elements of two rows
  using Ints = __m512i;
  using Lanes = __m512;
  using Act = __m512i;     // 32 integers of a token, twice
  using Scales = __m512i;  // 16-bit, for each row one for the first and one for the second 16 elements

  // Of four pairs of columns, each in one register, those that keep their sums in registers while `outputs` of eight
  // rows are computed.
  static constexpr int kColumnHalves = 1;
  static constexpr int units(int outputs) noexcept { return outputs <= 4 ? 4 : 2; }
  static constexpr int halves(int) noexcept { return 1; }

  static Act act(const std::int8_t* p) noexcept { return _mm512_broadcast_i64x4(load256(p)); }

  template <int bits>
  static Bytes codes(const std::uint8_t* plane, int pair) noexcept {
    if constexpr (bits == 8) {
      return join256(load256(plane + 64 * pair), load256(plane + 64 * pair + 32));
    } else {
      constexpr int per_byte = 8 / bits;
      const __m256i v = load256(plane + 2 * pair / per_byte * 32);
      const int shift = 2 * pair % per_byte * bits;
      const __m512i both = join256(_mm256_srli_epi16(v, shift), _mm256_srli_epi16(v, shift + bits));
      return _mm512_and_si512(both, _mm512_set1_epi8((1 << bits) - 1));
    }
  }
  template <int low_bits>
  static Bytes join(Bytes low, Bytes high) noexcept {
    return _mm512_or_si512(low, _mm512_slli_epi16(high, low_bits));
  }
  template <int offset>
  static Bytes minus(Bytes w) noexcept {
    return _mm512_sub_epi8(w, _mm512_set1_epi8(offset));
  }
  static Bytes look_up_pair(const std::int8_t* table, Bytes w) noexcept {
    const __m128i values = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(values), w);
  }

  static Ints int_lanes_zero() noexcept { return _mm512_setzero_si512(); }
  static Lanes lanes_zero() noexcept { return _mm512_setzero_ps(); }

  template <bool is_signed>
  static Ints scaled_dot(Ints sum, Bytes w, Act x, Scales s) noexcept {
    __m512i two;  // 16-bit sums of two, which don't overflow for codes below 129
    if constexpr (is_signed) {
      two = _mm512_maddubs_epi16(_mm512_abs_epi8(w), with_sign(x, w));
    } else {
      two = _mm512_maddubs_epi16(w, x);
    }
    return _mm512_add_epi32(sum, _mm512_madd_epi16(two, s));
  }
  // Scales 2j and 2j + 1 of 16 in each row, or scale j of 8 twice.
  template <int subs>
  static Scales scales(const std::uint8_t* of_rows, int pair, int j) noexcept {
    return join256(scales_of_row<subs>(of_rows + 2 * pair * subs, j),
                   scales_of_row<subs>(of_rows + (2 * pair + 1) * subs, j));
  }
  // Sixteen scales of each row times sixteen 16-bit numbers, neighbours added.
  static Ints all_scales_dot(const std::uint8_t* of_rows, int pair, const std::int16_t* sums) noexcept {
    return _mm512_madd_epi16(_mm512_cvtepi8_epi16(load256(of_rows + 32 * pair)), _mm512_broadcast_i64x4(load256(sums)));
  }
  template <int bits>
  static Ints minus_shifted(Ints sum, Ints x) noexcept {
    return _mm512_sub_epi32(sum, _mm512_slli_epi32(x, bits));
  }
  static Lanes fma(const float* d, Ints x, Lanes acc) noexcept {
    const __m512 both = _mm512_mask_blend_ps(0xff00, _mm512_set1_ps(d[0]), _mm512_set1_ps(d[1]));
    return _mm512_fmadd_ps(both, _mm512_cvtepi32_ps(x), acc);
  }
  static Rows sum(const Lanes& p, const Lanes& q, const Lanes& r, const Lanes& s) noexcept {
    return tree8({low(p), high(p), low(q), high(q), low(r), high(r), low(s), high(s)});
  }
  static IntRows sum(const Ints& p, const Ints& q, const Ints& r, const Ints& s) noexcept {
    return sum8({low(p), high(p), low(q), high(q), low(r), high(r), low(s), high(s)});
  }

  // Two columns side by side, eight rows in the lanes of each.
  using Columns = __m512i;
  using BlockAct = __m512i;
  using ColumnAct = __m512i;
  using ColumnScale = __m512;

  static Columns columns(TwoColumns w) noexcept { return join256(w.a, w.b); }
  template <int offset>
  static Columns columns_minus(Columns w) noexcept {
    return _mm512_sub_epi8(w, _mm512_set1_epi8(offset));
  }
  static Columns half_of(Columns w, int) noexcept { return w; }
  static BlockAct block_act(const std::int8_t* block) noexcept { return _mm512_castsi256_si512(load256(block)); }
  static ColumnAct column_act(BlockAct block, int unit, int) noexcept {
    const __m512i places =
        _mm512_add_epi32(_mm512_set1_epi32(unit), _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4));
    return _mm512_permutexvar_epi32(places, block);
  }
  static ColumnScale column_scale(Rows d) noexcept { return join_floats(d, d); }
  template <bool is_signed>
  static __m512 column_fma(ColumnScale d, Columns w, ColumnAct x, __m512 acc) noexcept {
    __m512i dot;
    if constexpr (is_signed) {
      dot = _mm512_dpbusd_epi32(int_lanes_zero(), _mm512_abs_epi8(w), with_sign(x, w));
    } else {
      dot = _mm512_dpbusd_epi32(int_lanes_zero(), w, x);
    }
    return _mm512_fmadd_ps(d, _mm512_cvtepi32_ps(dot), acc);
  }

  // Integer sums of columns, eight rows in the lanes.
  template <bool is_signed>
  struct ColumnSum {
    __m256i value = _mm256_setzero_si256();
    void add(__m256i w, const std::int8_t* four) noexcept {
      const __m256i x = broadcast_dword(four);
      if constexpr (is_signed) {
        value = _mm256_dpbusd_epi32(value, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
      } else {
        value = _mm256_dpbusd_epi32(value, w, x);
      }
    }
    IntRows ints() const noexcept { return value; }
    IntRows scaled(__m256i scale) const noexcept { return _mm256_mullo_epi32(value, scale); }
  };
  // Of pairs of 16-bit scales the first or second of each, in the form that scaled() wants.
  static __m256i scale_of_pair(__m256i pairs, int second) noexcept {
    return second ? _mm256_srli_epi32(pairs, 16) : _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff));
  }

  // Sixteen float lanes.
  struct Sixteen {
    __m512 lanes = _mm512_setzero_ps();
  };
  static Sixteen load16(const float* p) noexcept { return {_mm512_loadu_ps(p)}; }
  static Sixteen load16(const half* p) noexcept { return {join_floats(widen(p), widen(p + 8))}; }
  // As many float lanes as one register holds.
  using Register = __m512;
  static constexpr int kRegisterLanes = 16;
  static Register lanes_of(Sixteen a, int) noexcept { return a.lanes; }
  // The first addition of a tree: the halves of the last register. In AVX2 the first is one of them.
  static Rows fold(const Register&, Register last) noexcept { return add(low(last), high(last)); }
  static Register load_register(const float* p) noexcept { return _mm512_loadu_ps(p); }
  static Register register_fma(Register a, Register b, Register c) noexcept { return _mm512_fmadd_ps(a, b, c); }
  // Of sixteen pairs the first, or second, elements.
  static Sixteen firsts(const bfloat16* p) noexcept { return {_mm512_castsi512_ps(_mm512_slli_epi32(load512(p), 16))}; }
  static Sixteen seconds(const bfloat16* p) noexcept {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000u));
    return {_mm512_castsi512_ps(_mm512_and_si512(load512(p), upper))};
  }
  static Sixteen fma(Sixteen a, Sixteen b, Sixteen c) noexcept { return {_mm512_fmadd_ps(a.lanes, b.lanes, c.lanes)}; }
  static Sixteen add(Sixteen a, Sixteen b) noexcept { return {_mm512_add_ps(a.lanes, b.lanes)}; }
  static float tree16(Sixteen a) noexcept { return tree8(_mm256_add_ps(low(a.lanes), high(a.lanes))); }

 private:
  static __m512i load512(const void* p) noexcept { return _mm512_loadu_si512(p); }
  static __m512i join256(__m256i a, __m256i b) noexcept { return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1); }
  static __m512 join_floats(__m256 a, __m256 b) noexcept {
    return _mm512_castsi512_ps(join256(_mm256_castps_si256(a), _mm256_castps_si256(b)));
  }
  static __m256i low(__m512i a) noexcept { return _mm512_castsi512_si256(a); }
  static __m256i high(__m512i a) noexcept { return _mm512_extracti64x4_epi64(a, 1); }
  static __m256 low(__m512 a) noexcept { return _mm512_castps512_ps256(a); }
  static __m256 high(__m512 a) noexcept { return _mm256_castsi256_ps(high(_mm512_castps_si512(a))); }
  // x where w is positive or zero, -x where it is negative.
  static __m512i with_sign(__m512i x, __m512i w) noexcept {
    return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
  }
};

}  // namespace
}  // namespace bankml
