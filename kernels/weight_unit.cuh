#pragma once
// Reading quantised weights (src/device/cuda/planes.hpp) a unit of 32 elements at a time.
#include "device.cuh"
#include "device/cuda/planes.hpp"

namespace KERNEL_NAMESPACE {

// Whole words from memory aligned to them.
template <int kWords>
__device__ inline void load_words(const std::uint8_t* from, std::uint32_t (&to)[kWords]) {
  if constexpr (kWords % 4 == 0) {
    for (int i = 0; i < kWords; i += 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(from + 4 * i);
      to[i] = v.x;
      to[i + 1] = v.y;
      to[i + 2] = v.z;
      to[i + 3] = v.w;
    }
  } else if constexpr (kWords == 2) {
    const uint2 v = *reinterpret_cast<const uint2*>(from);
    to[0] = v.x;
    to[1] = v.y;
  } else {
    static_assert(kWords == 1);
    to[0] = *reinterpret_cast<const std::uint32_t*>(from);
  }
}

// An element of a float type.
template <class T>
__device__ inline float widen(T x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    return to_float(x);
  }
}

__device__ inline float widen_scale(half scale) {
  return to_float(scale);
}
// Half of a power of two; the two smallest are subnormal floats.
__device__ inline float widen_scale(half_e8m0 scale) {
  return __uint_as_float(scale.bits < 2 ? 0x00200000u << scale.bits : (scale.bits - 1u) << 23);
}

// Four bytes of a table as a word.
__host__ __device__ constexpr std::uint32_t table_word(const std::int8_t* table, int first) {
  std::uint32_t word = 0;
  for (int i = 0; i < 4; ++i)
    word |= static_cast<std::uint32_t>(static_cast<std::uint8_t>(table[first + i])) << (8 * i);
  return word;
}

// The values of the type's table for the eight nibbles of `codes`: of the low nibbles of its bytes, and of the high
// ones. A permutation picks one of eight bytes by three bits; the fourth bit then picks between two of those.
template <class Block>
__device__ inline void look_up(std::uint32_t codes, std::uint32_t& low, std::uint32_t& high) {
  constexpr std::uint32_t t0 = table_word(kTraits<Block>.table, 0), t1 = table_word(kTraits<Block>.table, 4);
  constexpr std::uint32_t t2 = table_word(kTraits<Block>.table, 8), t3 = table_word(kTraits<Block>.table, 12);
  const std::uint32_t index = codes & 0x77777777u, upper = ((codes & 0x88888888u) >> 1) | 0x32103210u;
  const std::uint32_t first = __byte_perm(__byte_perm(t0, t1, index), __byte_perm(t2, t3, index), upper);
  const std::uint32_t second =
      __byte_perm(__byte_perm(t0, t1, index >> 16), __byte_perm(t2, t3, index >> 16), upper >> 16);
  low = __byte_perm(first, second, 0x6420);
  high = __byte_perm(first, second, 0x7531);
}

// What kernels ask of a type, apart from its traits: those hold a pointer that a kernel can't follow.
template <class Block>
struct UnitLayout : PlaneLayout<Block> {
  static constexpr int low_bits = kTraits<Block>.low_bits, high_bits = kTraits<Block>.high_bits,
                       offset = kTraits<Block>.offset;
  static constexpr bool minimum = kTraits<Block>.minimum, table = kTraits<Block>.has_table;
};

template <class Block>
struct WeightUnit {
  using Layout = UnitLayout<Block>;
  std::int32_t q[kUnitWords];  // four int8 a word
  float d, m;
  int scale[Layout::halves], min[Layout::halves];
};

// Unit `index`, counted over all rows.
template <class Block>
__device__ inline void load_unit(const WeightPlanes& w, std::int64_t index, WeightUnit<Block>& out) {
  using Layout = UnitLayout<Block>;
  std::uint32_t low[Layout::low_bits];
  load_words(w.low + index * Layout::low_bytes, low);
  if constexpr (Layout::table) {
    for (int i = 0; i < 4; ++i) {
      std::uint32_t a, b;
      look_up<Block>(low[i], a, b);
      out.q[i] = static_cast<std::int32_t>(a);
      out.q[i + 4] = static_cast<std::int32_t>(b);
    }
  } else {
    constexpr std::uint32_t low_mask = ((1u << Layout::low_bits) - 1) * 0x01010101u;
    [[maybe_unused]] std::uint32_t high[Layout::high_bits ? Layout::high_bits : 1];
    if constexpr (Layout::high_bits != 0) load_words(w.high + index * Layout::high_bytes, high);
    for (int i = 0; i < kUnitWords; ++i) {
      std::uint32_t code = (low[i % Layout::low_bits] >> (i / Layout::low_bits * Layout::low_bits)) & low_mask;
      if constexpr (Layout::high_bits != 0) {
        constexpr std::uint32_t high_mask = ((1u << Layout::high_bits) - 1) * 0x01010101u;
        code |= ((high[i % Layout::high_bits] >> (i / Layout::high_bits * Layout::high_bits)) & high_mask)
                << Layout::low_bits;
      }
      // Each byte minus the offset: the highest bit keeps the bytes from borrowing from each other.
      if constexpr (Layout::offset != 0) {
        code = ((code | 0x80808080u) - static_cast<std::uint32_t>(Layout::offset) * 0x01010101u) ^ 0x80808080u;
      }
      out.q[i] = static_cast<std::int32_t>(code);
    }
  }
  const auto* scale =
      reinterpret_cast<const decltype(Block::d)*>(w.scale + index / Layout::units * Layout::scale_bytes);
  out.d = widen_scale(scale[0]);
  out.m = 0;
  if constexpr (Layout::minimum) out.m = widen_scale(scale[1]);
  if constexpr (Layout::sub_bytes == 1) {
    out.scale[0] = static_cast<std::int8_t>(w.sub[index]);
  } else if constexpr (Layout::sub_bytes == 2) {
    const std::uint32_t sub = *reinterpret_cast<const std::uint16_t*>(w.sub + 2 * index);
    const std::uint32_t a = sub & 255, b = sub >> 8;
    if constexpr (Layout::halves == 1) {
      out.scale[0] = static_cast<int>(a);
      out.min[0] = static_cast<int>(b);
    } else if constexpr (Layout::minimum) {
      out.scale[0] = static_cast<int>(a & 15);
      out.scale[1] = static_cast<int>(b & 15);
      out.min[0] = static_cast<int>(a >> 4);
      out.min[1] = static_cast<int>(b >> 4);
    } else {
      out.scale[0] = static_cast<std::int8_t>(a);
      out.scale[1] = static_cast<std::int8_t>(b);
    }
  }
}

// Value of element e, by the formulas of the format: each product and the sum are rounded.
template <class Block>
__device__ inline float unit_value(const WeightUnit<Block>& w, int e) {
  using Layout = UnitLayout<Block>;
  const float q = static_cast<float>(static_cast<std::int8_t>(static_cast<std::uint32_t>(w.q[e / 4]) >> (e % 4 * 8)));
  if constexpr (!Layout::super) {
    return Layout::minimum ? w.d * q + w.m : w.d * q;
  } else {
    const int part = Layout::halves == 2 ? e / 16 : 0;
    const float scaled = w.d * static_cast<float>(w.scale[part]) * q;
    if constexpr (!Layout::minimum) return scaled;
    return scaled - w.m * static_cast<float>(w.min[part]);
  }
}

}  // namespace KERNEL_NAMESPACE
