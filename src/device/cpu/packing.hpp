#pragma once
// How quantised weights lie in memory for the kernels: eight rows side by side, codes apart from scales, nothing
// repeated.
//
// A weight is two arrays, `quants` and `meta`, of one piece for each (group of eight rows, block), in that order. The
// codes of a block come 32 elements at a time, first their low bits, then their high bits. b bits of 32 elements and 8
// rows are b vectors of 32 bytes, in one of two orders:
//   columns  byte 4r + i holds element 4c + i of row r, for 8/b columns c: column c is in vector c%b, at bit c/b*b.
//            Eight rows are the eight 32-bit lanes of a register and share one scale each, whether the sums of four
//            neighbours are added up apart (docs/arithmetic.md, 3.2) or all together (3.3).
//   lanes    byte e of a vector holds element e of 8/b rows: row r is in vector r*b/8, at bit r*b%8. One row fills the
//            vector: for super-blocks that add up scaled sums of neighbours, where a scale belongs to half a vector.
// A piece of meta is d[8] (halves, MXFP4: bytes), half m[8] where the type has one, and for super-blocks the scales and
// minima of
// sub-blocks:
//   lanes    int8 scale[8][subs]
//   columns  uint8 scale[subs / 2][8][2]; Q2_K: its minimum in the high nibble
//   both     uint8 min[subs / 2][8][2], but for Q2_K
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "base/blocks.hpp"

namespace bankml {

inline constexpr int kGroup = 8;  // rows side by side

template <class Block>
struct Packing {
  static constexpr BlockTraits traits = kTraits<Block>;
  // One accumulator per output, where the peer repacks its weights too (docs/arithmetic.md, 3.3).
  static constexpr bool one_sum = std::is_same_v<Block, BlockQ4_0> || std::is_same_v<Block, BlockIq4Nl> ||
                                  std::is_same_v<Block, BlockMxfp4> || std::is_same_v<Block, BlockQ2K> ||
                                  std::is_same_v<Block, BlockQ4K>;
  static constexpr bool columns = one_sum || traits.length == kBlock;
  static constexpr bool nibble_scales = columns && traits.sub == 16;  // Q2_K
  static constexpr int subs = traits.sub ? traits.length / traits.sub : 0;
  static constexpr int low_bytes = 32 * traits.low_bits,
                       high_bytes = 32 * traits.high_bits;  // of 32 elements of eight rows
  static constexpr int sub_bytes = low_bytes + high_bytes;
  static constexpr int quant_bytes = traits.length / 32 * sub_bytes;
  using Scale = decltype(Block::d);
  static constexpr int m_at = kGroup * static_cast<int>(sizeof(Scale));
  static constexpr int scales_at = traits.minimum ? 2 * m_at : m_at;
  static constexpr int mins_at = scales_at + kGroup * subs;
  static constexpr int meta_bytes = mins_at + (subs && traits.minimum && !nibble_scales ? kGroup * subs : 0);
};

namespace detail {

// Where `bits` bits of element e (of 32) of row r are: a byte of the array of vectors, and the position of its lowest
// bit.
struct BitPlace {
  int byte, shift;
};
constexpr BitPlace bit_place(bool columns, int bits, int r, int e) noexcept {
  if (columns) return {e / 4 % bits * 32 + 4 * r + e % 4, e / 4 / bits * bits};
  const int per_byte = 8 / bits;
  return {r / per_byte * 32 + e, r % per_byte * bits};
}

// The code of each integer of a type with a table, by its byte.
template <class Block>
inline constexpr auto kCodes = [] {
  std::array<std::uint8_t, 256> codes{};
  for (int code = 15; code >= 0; --code) {
    codes[static_cast<std::uint8_t>(kTraits<Block>.table[code])] = static_cast<std::uint8_t>(code);
  }
  return codes;
}();

template <class Block>
constexpr int code_of(std::int8_t integer) noexcept {
  if constexpr (kTraits<Block>.has_table) return kCodes<Block>[static_cast<std::uint8_t>(integer)];
  return (integer + kTraits<Block>.offset) & 255;
}
template <class Block>
constexpr std::int8_t integer_of(int code) noexcept {
  if constexpr (kTraits<Block>.has_table) return kTraits<Block>.table[code];
  return static_cast<std::int8_t>(code - kTraits<Block>.offset);
}

// The place of sub-block j's scale or minimum in arrays of pairs.
constexpr int pair_place(int r, int j) noexcept {
  return j / 2 * 2 * kGroup + 2 * r + j % 2;
}

}  // namespace detail

// Adds row r (0..7) of a block to a packed piece, whose bytes are zero before the first row.
template <class Block>
void pack(const Decoded<Block>& block, int r, std::uint8_t* quants, std::uint8_t* meta) noexcept {
  using P = Packing<Block>;
  constexpr BlockTraits traits = P::traits;
  for (int e = 0; e < traits.length; ++e) {
    const int code = detail::code_of<Block>(block.q[e]);
    std::uint8_t* piece = quants + e / 32 * P::sub_bytes;
    const auto low = detail::bit_place(P::columns, traits.low_bits, r, e % 32);
    piece[low.byte] |= static_cast<std::uint8_t>((code & ((1 << traits.low_bits) - 1)) << low.shift);
    if constexpr (traits.high_bits != 0) {
      const auto high = detail::bit_place(P::columns, traits.high_bits, r, e % 32);
      piece[P::low_bytes + high.byte] |= static_cast<std::uint8_t>(code >> traits.low_bits << high.shift);
    }
  }
  reinterpret_cast<typename P::Scale*>(meta)[r] = block.d;
  if constexpr (traits.minimum) reinterpret_cast<half*>(meta + P::m_at)[r] = block.m;
  for (int j = 0; j < P::subs; ++j) {
    const auto scale = static_cast<std::uint8_t>(block.scale[j]), min = static_cast<std::uint8_t>(block.min[j]);
    std::uint8_t* scales = meta + P::scales_at;
    if constexpr (P::nibble_scales) {
      scales[detail::pair_place(r, j)] = static_cast<std::uint8_t>(scale | min << 4);
    } else {
      scales[P::columns ? detail::pair_place(r, j) : r * P::subs + j] = scale;
      if constexpr (traits.minimum) meta[P::mins_at + detail::pair_place(r, j)] = min;
    }
  }
}

// The inverse of pack().
template <class Block>
void unpack(const std::uint8_t* quants, const std::uint8_t* meta, int r, Decoded<Block>& out) noexcept {
  using P = Packing<Block>;
  constexpr BlockTraits traits = P::traits;
  for (int e = 0; e < traits.length; ++e) {
    const std::uint8_t* piece = quants + e / 32 * P::sub_bytes;
    const auto low = detail::bit_place(P::columns, traits.low_bits, r, e % 32);
    int code = (piece[low.byte] >> low.shift) & ((1 << traits.low_bits) - 1);
    if constexpr (traits.high_bits != 0) {
      const auto high = detail::bit_place(P::columns, traits.high_bits, r, e % 32);
      code |= ((piece[P::low_bytes + high.byte] >> high.shift) & ((1 << traits.high_bits) - 1)) << traits.low_bits;
    }
    out.q[e] = detail::integer_of<Block>(code);
  }
  out.d = reinterpret_cast<const typename P::Scale*>(meta)[r];
  out.m = {};
  if constexpr (traits.minimum) out.m = reinterpret_cast<const half*>(meta + P::m_at)[r];
  for (int j = 0; j < Decoded<Block>::subs; ++j) out.scale[j] = out.min[j] = 0;
  for (int j = 0; j < P::subs; ++j) {
    const std::uint8_t* scales = meta + P::scales_at;
    const std::uint8_t scale = scales[P::columns ? detail::pair_place(r, j) : r * P::subs + j];
    if constexpr (P::nibble_scales) {
      out.scale[j] = static_cast<std::int8_t>(scale & 15);
      out.min[j] = static_cast<std::int8_t>(scale >> 4);
    } else {
      out.scale[j] = static_cast<std::int8_t>(scale);
      if constexpr (traits.minimum) out.min[j] = static_cast<std::int8_t>(meta[P::mins_at + detail::pair_place(r, j)]);
    }
  }
}

}  // namespace bankml
