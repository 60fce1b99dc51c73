#pragma once
// The operations of the kernels in AVX2: two weight rows are two registers.
#include "device/cpu/rows_256.hpp"

namespace bankml {
namespace {

struct Simd : Rows256 {
  using Rows256::add;
  using Rows256::fma;

  struct Bytes {
    __m256i a, b;  // codes or integers of 32 elements of two rows
  };
  struct Ints {
    __m256i a, b;
  };
  struct Lanes {
    __m256 a, b;
  };
  using Act = __m256i;  // 32 integers of a token
  using Scales = Ints;  // 16-bit, for each row one for the first and one for the second 16 elements

  // Of four pairs of columns, those that keep their sums in registers while `outputs` of eight rows are computed, and
  // of each pair the halves.
  static constexpr int kColumnHalves = 2;
  static constexpr int units(int outputs) noexcept { return outputs == 1 ? 4 : outputs == 2 ? 2 : 1; }
  static constexpr int halves(int outputs) noexcept { return outputs <= 4 ? 2 : 1; }

  static Act act(const std::int8_t* p) noexcept { return load256(p); }

  template <int bits>
  static Bytes codes(const std::uint8_t* plane, int pair) noexcept {
    if constexpr (bits == 8) {
      return {load256(plane + 64 * pair), load256(plane + 64 * pair + 32)};
    } else {
      constexpr int per_byte = 8 / bits;
      const __m256i v = load256(plane + 2 * pair / per_byte * 32);
      const __m256i mask = _mm256_set1_epi8((1 << bits) - 1);
      const int shift = 2 * pair % per_byte * bits;
      return {_mm256_and_si256(_mm256_srli_epi16(v, shift), mask),
              _mm256_and_si256(_mm256_srli_epi16(v, shift + bits), mask)};
    }
  }
  template <int low_bits>
  static Bytes join(Bytes low, Bytes high) noexcept {
    return {_mm256_or_si256(low.a, _mm256_slli_epi16(high.a, low_bits)),
            _mm256_or_si256(low.b, _mm256_slli_epi16(high.b, low_bits))};
  }
  template <int offset>
  static Bytes minus(Bytes w) noexcept {
    return {_mm256_sub_epi8(w.a, _mm256_set1_epi8(offset)), _mm256_sub_epi8(w.b, _mm256_set1_epi8(offset))};
  }
  static Bytes look_up_pair(const std::int8_t* table, Bytes w) noexcept {
    return {look_up(table, w.a), look_up(table, w.b)};
  }

  static Ints int_lanes_zero() noexcept { return {int_zero(), int_zero()}; }
  static Lanes lanes_zero() noexcept { return {zero(), zero()}; }

  // Products of neighbours, added: 16-bit sums of two, which don't overflow for codes below 129.
  template <bool is_signed>
  static __m256i dot2(__m256i w, Act x) noexcept {
    if constexpr (is_signed) return _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_maddubs_epi16(w, x);
  }
  template <bool is_signed>
  static Ints scaled_dot(Ints sum, Bytes w, Act x, Scales s) noexcept {
    return {_mm256_add_epi32(sum.a, _mm256_madd_epi16(dot2<is_signed>(w.a, x), s.a)),
            _mm256_add_epi32(sum.b, _mm256_madd_epi16(dot2<is_signed>(w.b, x), s.b))};
  }
  // Scales 2j and 2j + 1 of 16 in each row, or scale j of 8 twice.
  template <int subs>
  static Scales scales(const std::uint8_t* of_rows, int pair, int j) noexcept {
    return {scales_of_row<subs>(of_rows + 2 * pair * subs, j), scales_of_row<subs>(of_rows + (2 * pair + 1) * subs, j)};
  }
  // Sixteen scales of each row times sixteen 16-bit numbers, neighbours added.
  static Ints all_scales_dot(const std::uint8_t* of_rows, int pair, const std::int16_t* sums) noexcept {
    const auto* rows = reinterpret_cast<const __m128i*>(of_rows + 32 * pair);
    const __m256i s = load256(sums);
    return {_mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(rows)), s),
            _mm256_madd_epi16(_mm256_cvtepi8_epi16(_mm_loadu_si128(rows + 1)), s)};
  }
  template <int bits>
  static Ints minus_shifted(Ints sum, Ints x) noexcept {
    return {_mm256_sub_epi32(sum.a, _mm256_slli_epi32(x.a, bits)),
            _mm256_sub_epi32(sum.b, _mm256_slli_epi32(x.b, bits))};
  }
  static Lanes fma(const float* d, Ints x, Lanes acc) noexcept {
    return {_mm256_fmadd_ps(_mm256_broadcast_ss(d), _mm256_cvtepi32_ps(x.a), acc.a),
            _mm256_fmadd_ps(_mm256_broadcast_ss(d + 1), _mm256_cvtepi32_ps(x.b), acc.b)};
  }
  static Rows sum(const Lanes& p, const Lanes& q, const Lanes& r, const Lanes& s) noexcept {
    return tree8({p.a, p.b, q.a, q.b, r.a, r.b, s.a, s.b});
  }
  static IntRows sum(const Ints& p, const Ints& q, const Ints& r, const Ints& s) noexcept {
    return sum8({p.a, p.b, q.a, q.b, r.a, r.b, s.a, s.b});
  }

  // Two columns apart, eight rows in the lanes of each.
  using Columns = TwoColumns;
  using BlockAct = const std::int8_t*;
  using ColumnAct = __m256i;
  using ColumnScale = __m256;

  static Columns columns(TwoColumns w) noexcept { return w; }
  template <int offset>
  static Columns columns_minus(Columns w) noexcept {
    return {_mm256_sub_epi8(w.a, _mm256_set1_epi8(offset)), _mm256_sub_epi8(w.b, _mm256_set1_epi8(offset))};
  }
  static __m256i half_of(const Columns& w, int half_index) noexcept { return half_index == 0 ? w.a : w.b; }
  static BlockAct block_act(const std::int8_t* block) noexcept { return block; }
  static ColumnAct column_act(BlockAct block, int unit, int half_index) noexcept {
    return broadcast_dword(block + 4 * unit + 16 * half_index);
  }
  static ColumnScale column_scale(Rows d) noexcept { return d; }
  template <bool is_signed>
  static __m256 column_fma(ColumnScale d, __m256i w, ColumnAct x, __m256 acc) noexcept {
    const __m256i ints = _mm256_madd_epi16(dot2<is_signed>(w, x), _mm256_set1_epi16(1));
    return _mm256_fmadd_ps(d, _mm256_cvtepi32_ps(ints), acc);
  }

  // Integer sums of columns, eight rows in the lanes.
  template <bool is_signed>
  struct ColumnSum {
    __m256i value = _mm256_setzero_si256();
    void add(__m256i w, const std::int8_t* four) noexcept {
      const __m256i x = broadcast_dword(four);
      if constexpr (is_signed) {  // up to 127 * 127 each: only two fit into 16 bits
        value = _mm256_add_epi32(value, _mm256_madd_epi16(dot2<true>(w, x), _mm256_set1_epi16(1)));
      } else {  // eight columns of codes below 16 fit: 8 * 2 * 15 * 127 < 2^15
        value = _mm256_add_epi16(value, dot2<false>(w, x));
      }
    }
    IntRows ints() const noexcept { return is_signed ? value : _mm256_madd_epi16(value, _mm256_set1_epi16(1)); }
    IntRows scaled(__m256i scale) const noexcept { return _mm256_madd_epi16(value, scale); }
  };
  // Of pairs of 16-bit scales the first or second of each, in the form that scaled() wants.
  static __m256i scale_of_pair(__m256i pairs, int second) noexcept {
    const __m256i one = second ? _mm256_srli_epi32(pairs, 16) : _mm256_and_si256(pairs, _mm256_set1_epi32(0xffff));
    return _mm256_or_si256(one, _mm256_slli_epi32(one, 16));
  }

  // Sixteen float lanes.
  struct Sixteen {
    __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  };
  static Sixteen load16(const float* p) noexcept { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  static Sixteen load16(const half* p) noexcept { return {widen(p), widen(p + 8)}; }
  // As many float lanes as one register holds.
  using Register = __m256;
  static constexpr int kRegisterLanes = 8;
  static Register lanes_of(Sixteen a, int register_index) noexcept { return register_index == 0 ? a.low : a.high; }
  // The first addition of a tree: halves that are registers of their own. AVX-512 has both in the last.
  static Rows fold(const Register& first, Register last) noexcept { return add(first, last); }
  static Register load_register(const float* p) noexcept { return _mm256_loadu_ps(p); }
  static Register register_fma(Register a, Register b, Register c) noexcept { return _mm256_fmadd_ps(a, b, c); }
  // Of sixteen pairs the first, or second, elements.
  static Sixteen firsts(const bfloat16* p) noexcept { return pick<false>(p); }
  static Sixteen seconds(const bfloat16* p) noexcept { return pick<true>(p); }
  static Sixteen fma(Sixteen a, Sixteen b, Sixteen c) noexcept {
    return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
  }
  static Sixteen add(Sixteen a, Sixteen b) noexcept {
    return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
  }
  static float tree16(Sixteen a) noexcept { return tree8(_mm256_add_ps(a.low, a.high)); }

 private:
  template <bool second>
  static Sixteen pick(const bfloat16* p) noexcept {
    const auto one = [](const void* q) {
      const __m256i v = load256(q);
      return _mm256_castsi256_ps(second ? _mm256_and_si256(v, _mm256_set1_epi32(static_cast<int>(0xffff0000u)))
                                        : _mm256_slli_epi32(v, 16));
    };
    return {one(p), one(p + 16)};
  }
};

}  // namespace
}  // namespace bankml
