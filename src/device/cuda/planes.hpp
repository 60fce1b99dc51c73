#pragma once
// How the GPU keeps a weight: as planes, so that a thread loads whole aligned words where a block of a GGUF file starts
// at any even byte. The same bits, in another order (but for the 6-bit scales of sub-blocks, which take a byte each).
//
// A plane is an array over all units of 32 elements, row after row:
//   low    the low bits of the codes: 8, 16 or 32 bytes a unit
//   high   the high bits, for types that have some: 4 or 8 bytes a unit
//   sub    super-blocks: two bytes a unit; Q2_K, Q3_K, Q6_K: of its two halves (Q2_K: scale in the low nibble, minimum
//   in the high
//          one); Q4_K and Q5_K: scale and minimum; IQ4_XS: one byte, the scale
//   scale  one a block: d (a half; MXFP4: a byte), or halves d and m (dmin) for types with a minimum
// Bits lie so that a mask or a shift and a mask give four neighbours in the four bytes of a word: with b bits a code,
// word i (elements 4i to 4i + 3) is in word i % b of the unit, shifted by i / b * b. Float types have their rows in
// `low`, as in the file. The rows of several experts follow one another.
#include <cstddef>
#include <cstdint>

#include "base/blocks.hpp"

namespace bankml {

struct WeightPlanes {
  DType type = DType::f32;
  std::int64_t rows = 0;  // of one expert
  int cols = 0;
  const std::uint8_t *low = nullptr, *high = nullptr, *sub = nullptr, *scale = nullptr;
  bool operator==(const WeightPlanes&) const = default;
};

inline constexpr int kUnit = 32;      // elements
inline constexpr int kUnitWords = 8;  // words of four integers

template <class Block>
struct PlaneLayout {
  static constexpr BlockTraits traits = kTraits<Block>;
  static constexpr bool super = traits.sub != 0;
  static constexpr int units = traits.length / kUnit;      // of a block
  static constexpr int halves = traits.sub == 16 ? 2 : 1;  // parts of a unit with their own scale
  // Bytes of a unit.
  static constexpr int low_bytes = 4 * traits.low_bits;
  static constexpr int high_bytes = 4 * traits.high_bits;
  static constexpr int sub_bytes = !super ? 0 : halves == 2 || traits.minimum ? 2 : 1;
  // Bytes of a block.
  static constexpr int scale_bytes = (traits.minimum ? 2 : 1) * int{sizeof(Block::d)};
};

// Where `bits` bits of element e of a unit lie: a byte, and the position of the lowest bit in it.
struct PlaneBits {
  int byte, shift;
};
constexpr PlaneBits plane_bits(int bits, int e) noexcept {
  const int word = e / 4;
  return {word % bits * 4 + e % 4, word / bits * bits};
}

}  // namespace bankml
