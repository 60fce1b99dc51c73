#pragma once
// The blocks of GGUF's quantised tensor types, byte for byte (docs/gguf.md, section 3), and their integers.
//
// quants(block, q) writes the integers that multiply the block's scale, in element order: offsets are applied (Q4_0:
// -8..7), a minimum is not. Scales of sub-blocks come from sub_scale() and sub_min().
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "bankml/base/numeric.hpp"

namespace bankml {

inline constexpr int kBlock = 32;        // elements of the small blocks
inline constexpr int kSuperBlock = 256;  // elements of the K-types and of IQ4_XS

// The values that a nibble of IQ4_NL and IQ4_XS stands for.
inline constexpr std::int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                               1,    13,   25,  38,  53,  69,  89,  113};

// The values that a nibble of MXFP4 stands for, doubled so that they are integers: the scale is halved instead.
inline constexpr std::int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Half of a scale in the format E8M0: 2^(bits - 128).
struct half_e8m0 {
  std::uint8_t bits;
};
inline float to_float(half_e8m0 scale) noexcept {
  // The two smallest are subnormal floats.
  return std::bit_cast<float>(scale.bits < 2 ? 0x00200000u << scale.bits : (scale.bits - 1u) << 23);
}

// Sets a block's scale to a value, or to the power of two below its size: for made-up weights.
inline void set_scale(half& scale, float value) noexcept {
  scale = to_half(value);
}
inline void set_scale(half_e8m0& scale, float value) noexcept {
  constexpr int kBias = 128, kLargest = 254;
  scale.bits = static_cast<std::uint8_t>(std::clamp(value == 0.0f ? 0 : std::ilogb(value) + kBias, 0, kLargest));
}

struct BlockQ4_0 {
  half d;
  std::uint8_t qs[16];  // byte b: element b in the low nibble, element b + 16 in the high one
};
struct BlockQ4_1 {
  half d, m;
  std::uint8_t qs[16];
};
struct BlockQ5_0 {
  half d;
  std::uint8_t qh[4];  // fifth bits: bit e of the little-endian word
  std::uint8_t qs[16];
};
struct BlockQ5_1 {
  half d, m;
  std::uint8_t qh[4];
  std::uint8_t qs[16];
};
struct BlockQ8_0 {
  half d;
  std::int8_t qs[32];
};
struct BlockIq4Nl {
  half d;
  std::uint8_t qs[16];
};
struct BlockMxfp4 {
  half_e8m0 d;
  std::uint8_t qs[16];
};
struct BlockQ2K {
  std::uint8_t scales[16];  // low nibble scale, high nibble minimum
  std::uint8_t qs[64];
  half d, dmin;
};
struct BlockQ3K {
  std::uint8_t hmask[32];
  std::uint8_t qs[64];
  std::uint8_t scales[12];
  half d;
};
struct BlockQ4K {
  half d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qs[128];
};
struct BlockQ5K {
  half d, dmin;
  std::uint8_t scales[12];
  std::uint8_t qh[32];
  std::uint8_t qs[128];
};
struct BlockQ6K {
  std::uint8_t ql[128];
  std::uint8_t qh[64];
  std::int8_t scales[16];
  half d;
};
struct BlockIq4Xs {
  half d;
  std::uint8_t scales_h[2];
  std::uint8_t scales_l[4];
  std::uint8_t qs[128];
};
static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 && sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24);
static_assert(sizeof(BlockQ8_0) == 34 && sizeof(BlockIq4Nl) == 18 && sizeof(BlockQ2K) == 84 && sizeof(BlockQ3K) == 110);
static_assert(sizeof(BlockQ4K) == 144 && sizeof(BlockQ5K) == 176 && sizeof(BlockQ6K) == 210 &&
              sizeof(BlockIq4Xs) == 136 && sizeof(BlockMxfp4) == 17);

namespace detail {

template <class Block>
void nibbles(const Block& b, std::int8_t* q) noexcept {
  for (int e = 0; e < 16; ++e) {
    q[e] = static_cast<std::int8_t>(b.qs[e] & 15);
    q[e + 16] = static_cast<std::int8_t>(b.qs[e] >> 4);
  }
}
template <class Block>
void five_bits(const Block& b, std::int8_t* q) noexcept {
  nibbles(b, q);
  for (int e = 0; e < 32; ++e) q[e] = static_cast<std::int8_t>(q[e] | ((b.qh[e / 8] >> (e % 8)) & 1) << 4);
}
inline void add(std::int8_t* q, int n, int offset) noexcept {
  for (int e = 0; e < n; ++e) q[e] = static_cast<std::int8_t>(q[e] + offset);
}

}  // namespace detail

inline void quants(const BlockQ4_0& b, std::int8_t* q) noexcept {
  detail::nibbles(b, q);
  detail::add(q, kBlock, -8);
}
inline void quants(const BlockQ4_1& b, std::int8_t* q) noexcept {
  detail::nibbles(b, q);
}
inline void quants(const BlockQ5_0& b, std::int8_t* q) noexcept {
  detail::five_bits(b, q);
  detail::add(q, kBlock, -16);
}
inline void quants(const BlockQ5_1& b, std::int8_t* q) noexcept {
  detail::five_bits(b, q);
}
inline void quants(const BlockQ8_0& b, std::int8_t* q) noexcept {
  for (int e = 0; e < kBlock; ++e) q[e] = b.qs[e];
}
inline void quants(const BlockIq4Nl& b, std::int8_t* q) noexcept {
  detail::nibbles(b, q);
  for (int e = 0; e < kBlock; ++e) q[e] = kIq4Values[q[e]];
}
inline void quants(const BlockMxfp4& b, std::int8_t* q) noexcept {
  detail::nibbles(b, q);
  for (int e = 0; e < kBlock; ++e) q[e] = kMxfp4Values[q[e]];
}
inline void quants(const BlockQ2K& b, std::int8_t* q) noexcept {
  for (int e = 0; e < kSuperBlock; ++e) {
    q[e] = static_cast<std::int8_t>((b.qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3);
  }
}
inline void quants(const BlockQ3K& b, std::int8_t* q) noexcept {
  for (int e = 0; e < kSuperBlock; ++e) {
    const int low = (b.qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
    q[e] = static_cast<std::int8_t>(low - ((b.hmask[e % 32] >> (e / 32)) & 1 ? 0 : 4));
  }
}
inline void quants(const BlockQ4K& b, std::int8_t* q) noexcept {
  for (int e = 0; e < kSuperBlock; ++e) {
    q[e] = static_cast<std::int8_t>((b.qs[32 * (e / 64) + e % 32] >> (e / 32 % 2 * 4)) & 15);
  }
}
inline void quants(const BlockQ5K& b, std::int8_t* q) noexcept {
  for (int e = 0; e < kSuperBlock; ++e) {
    const int low = (b.qs[32 * (e / 64) + e % 32] >> (e / 32 % 2 * 4)) & 15;
    q[e] = static_cast<std::int8_t>(low | ((b.qh[e % 32] >> (e / 32)) & 1) << 4);
  }
}
inline void quants(const BlockQ6K& b, std::int8_t* q) noexcept {
  for (int e = 0; e < kSuperBlock; ++e) {
    const int h = e / 128, s = e % 128 / 32, l = e % 32;
    const int low = (b.ql[64 * h + 32 * (s & 1) + l] >> (s / 2 * 4)) & 15;
    q[e] = static_cast<std::int8_t>((low | ((b.qh[32 * h + l] >> (2 * s)) & 3) << 4) - 32);
  }
}
inline void quants(const BlockIq4Xs& b, std::int8_t* q) noexcept {
  for (int e = 0; e < kSuperBlock; ++e) {
    q[e] = kIq4Values[(b.qs[16 * (e / 32) + e % 16] >> (e % 32 / 16 * 4)) & 15];
  }
}

// Scale and minimum of sub-block j: 16 elements in Q2_K, Q3_K and Q6_K, 32 in the others.
inline int sub_scale(const BlockQ2K& b, int j) noexcept {
  return b.scales[j] & 15;
}
inline int sub_min(const BlockQ2K& b, int j) noexcept {
  return b.scales[j] >> 4;
}
inline int sub_scale(const BlockQ3K& b, int j) noexcept {
  const int low = j < 8 ? b.scales[j] & 15 : b.scales[j - 8] >> 4;
  return (low | ((b.scales[8 + j % 4] >> (2 * (j / 4))) & 3) << 4) - 32;
}
template <class BlockQ4KOrQ5K>
int sub_scale(const BlockQ4KOrQ5K& b, int j) noexcept {
  return j < 4 ? b.scales[j] & 63 : (b.scales[j + 4] & 15) | (b.scales[j - 4] >> 6) << 4;
}
template <class BlockQ4KOrQ5K>
int sub_min(const BlockQ4KOrQ5K& b, int j) noexcept {
  return j < 4 ? b.scales[j + 4] & 63 : (b.scales[j + 4] >> 4) | (b.scales[j] >> 6) << 4;
}
inline int sub_scale(const BlockQ6K& b, int j) noexcept {
  return b.scales[j];
}
inline int sub_scale(const BlockIq4Xs& b, int j) noexcept {
  const int low = (b.scales_l[j / 2] >> (j % 2 * 4)) & 15;
  const int high = (b.scales_h[j / 4] >> (2 * (j % 4))) & 3;
  return (low | high << 4) - 32;
}

// What tells the block types apart once they are decoded. A code is the number stored for an element; its integer is
// code - offset, or table[code]. The kernels' layouts store codes as `low_bits` and `high_bits` apart.
struct BlockTraits {
  int length;  // elements
  int sub;     // elements of a sub-block with its own scale; 0: none
  int low_bits;
  int high_bits;
  int offset;
  bool minimum;              // has m or dmin
  const std::int8_t* table;  // of the 16 codes' integers; nullptr: none
  // Whether there is one: under UBSan gcc doesn't take a comparison of an address for a constant (its bug 71962).
  bool has_table = false;
};

template <class Block>
inline constexpr BlockTraits kTraits{};
template <>
inline constexpr BlockTraits kTraits<BlockQ4_0>{kBlock, 0, 4, 0, 8, false, nullptr};
template <>
inline constexpr BlockTraits kTraits<BlockQ4_1>{kBlock, 0, 4, 0, 0, true, nullptr};
template <>
inline constexpr BlockTraits kTraits<BlockQ5_0>{kBlock, 0, 4, 1, 16, false, nullptr};
template <>
inline constexpr BlockTraits kTraits<BlockQ5_1>{kBlock, 0, 4, 1, 0, true, nullptr};
template <>
inline constexpr BlockTraits kTraits<BlockQ8_0>{kBlock, 0, 8, 0, 0, false, nullptr};
template <>
inline constexpr BlockTraits kTraits<BlockIq4Nl>{kBlock, 0, 4, 0, 0, false, kIq4Values, true};
template <>
inline constexpr BlockTraits kTraits<BlockMxfp4>{kBlock, 0, 4, 0, 0, false, kMxfp4Values, true};
template <>
inline constexpr BlockTraits kTraits<BlockQ2K>{kSuperBlock, 16, 2, 0, 0, true, nullptr};
template <>
inline constexpr BlockTraits kTraits<BlockQ3K>{kSuperBlock, 16, 2, 1, 4, false, nullptr};
template <>
inline constexpr BlockTraits kTraits<BlockQ4K>{kSuperBlock, 32, 4, 0, 0, true, nullptr};
template <>
inline constexpr BlockTraits kTraits<BlockQ5K>{kSuperBlock, 32, 4, 1, 0, true, nullptr};
template <>
inline constexpr BlockTraits kTraits<BlockQ6K>{kSuperBlock, 16, 4, 2, 32, false, nullptr};
template <>
inline constexpr BlockTraits kTraits<BlockIq4Xs>{kSuperBlock, 32, 4, 0, 0, false, kIq4Values, true};

template <class Block>
struct Decoded {
  static constexpr BlockTraits traits = kTraits<Block>;
  static constexpr int subs = traits.sub ? traits.length / traits.sub : 1;
  decltype(Block::d) d;
  half m;  // also dmin; zero if the type has none
  std::int8_t q[traits.length];
  std::int8_t scale[subs], min[subs];  // zero if the type has none
};

template <class Block>
void decode(const Block& block, Decoded<Block>& out) noexcept {
  constexpr BlockTraits traits = kTraits<Block>;
  out.d = block.d;
  out.m = {};
  quants(block, out.q);
  if constexpr (requires { block.m; }) out.m = block.m;
  if constexpr (requires { block.dmin; }) out.m = block.dmin;
  for (int j = 0; j < Decoded<Block>::subs; ++j) {
    out.scale[j] = out.min[j] = 0;
    if constexpr (traits.sub != 0) out.scale[j] = static_cast<std::int8_t>(sub_scale(block, j));
    if constexpr (requires { block.dmin; }) out.min[j] = static_cast<std::int8_t>(sub_min(block, j));
  }
}

// The values of a block: d * q [+ m], or (d * scale) * q [- dmin * min]; each product and sum is rounded.
template <class Block>
void dequantize(const Decoded<Block>& b, float* out) noexcept {
  constexpr BlockTraits traits = kTraits<Block>;
  const float d = to_float(b.d), m = to_float(b.m);
  for (int e = 0; e < traits.length; ++e) {
    const auto q = static_cast<float>(b.q[e]);
    if constexpr (traits.sub == 0) {
      out[e] = traits.minimum ? d * q + m : d * q;
    } else {
      const float scaled = d * static_cast<float>(b.scale[e / traits.sub]) * q;
      out[e] = traits.minimum ? scaled - m * static_cast<float>(b.min[e / traits.sub]) : scaled;
    }
  }
}

// Calls f.template operator()<Block>() with the block struct of a quantised type; does nothing for the float types.
template <class F>
void with_block(DType type, F&& f) {
  switch (type) {
    case DType::q4_0:
      return f.template operator()<BlockQ4_0>();
    case DType::q4_1:
      return f.template operator()<BlockQ4_1>();
    case DType::q5_0:
      return f.template operator()<BlockQ5_0>();
    case DType::q5_1:
      return f.template operator()<BlockQ5_1>();
    case DType::q8_0:
      return f.template operator()<BlockQ8_0>();
    case DType::iq4_nl:
      return f.template operator()<BlockIq4Nl>();
    case DType::q2_k:
      return f.template operator()<BlockQ2K>();
    case DType::q3_k:
      return f.template operator()<BlockQ3K>();
    case DType::q4_k:
      return f.template operator()<BlockQ4K>();
    case DType::q5_k:
      return f.template operator()<BlockQ5K>();
    case DType::q6_k:
      return f.template operator()<BlockQ6K>();
    case DType::iq4_xs:
      return f.template operator()<BlockIq4Xs>();
    case DType::mxfp4:
      return f.template operator()<BlockMxfp4>();
    case DType::f32:
    case DType::f16:
    case DType::bf16:
      return;
  }
}

}  // namespace bankml
