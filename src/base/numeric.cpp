#include "bankml/base/numeric.hpp"

#include <bit>
#include <cstring>

#include "base/blocks.hpp"

namespace bankml {
namespace {

struct TypeEntry {
  DType type;
  DTypeInfo info;
};

constexpr TypeEntry kTypes[] = {
    {DType::f32, {"F32", 1, 4}},
    {DType::f16, {"F16", 1, 2}},
    {DType::q4_0, {"Q4_0", kBlock, sizeof(BlockQ4_0)}},
    {DType::q4_1, {"Q4_1", kBlock, sizeof(BlockQ4_1)}},
    {DType::q5_0, {"Q5_0", kBlock, sizeof(BlockQ5_0)}},
    {DType::q5_1, {"Q5_1", kBlock, sizeof(BlockQ5_1)}},
    {DType::q8_0, {"Q8_0", kBlock, sizeof(BlockQ8_0)}},
    {DType::q2_k, {"Q2_K", kSuperBlock, sizeof(BlockQ2K)}},
    {DType::q3_k, {"Q3_K", kSuperBlock, sizeof(BlockQ3K)}},
    {DType::q4_k, {"Q4_K", kSuperBlock, sizeof(BlockQ4K)}},
    {DType::q5_k, {"Q5_K", kSuperBlock, sizeof(BlockQ5K)}},
    {DType::q6_k, {"Q6_K", kSuperBlock, sizeof(BlockQ6K)}},
    {DType::iq4_nl, {"IQ4_NL", kBlock, sizeof(BlockIq4Nl)}},
    {DType::iq4_xs, {"IQ4_XS", kSuperBlock, sizeof(BlockIq4Xs)}},
    {DType::bf16, {"BF16", 1, 2}},
    {DType::mxfp4, {"MXFP4", kBlock, sizeof(BlockMxfp4)}},
};

}  // namespace

const DTypeInfo* find_dtype(std::int32_t id) noexcept {
  for (const TypeEntry& entry : kTypes) {
    if (static_cast<std::int32_t>(entry.type) == id) return &entry.info;
  }
  return nullptr;
}

const DTypeInfo& dtype_info(DType type) noexcept {
  return *find_dtype(static_cast<std::int32_t>(type));
}

float to_float(half h) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(h.bits & 0x8000u) << 16;
  const std::uint32_t rest = h.bits & 0x7fffu;
  if (rest >= 0x7c00u) {  // infinity, and NaN made quiet
    const std::uint32_t quiet = rest > 0x7c00u ? 0x00400000u : 0;
    return std::bit_cast<float>(sign | 0x7f800000u | (rest & 0x3ffu) << 13 | quiet);
  }
  if (rest >= 0x0400u) return std::bit_cast<float>(sign | ((rest << 13) + (112u << 23)));
  const float subnormal = static_cast<float>(rest) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(subnormal));
}

half to_half(float f) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(f);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t rest = bits & 0x7fffffffu;
  std::uint32_t h;
  if (rest > 0x7f800000u) {
    h = 0x7e00u | ((rest >> 13) & 0x3ffu);
  } else if (rest >= 0x47800000u) {  // 2^16 and more; what rounds up to it gets there by the carry below
    h = 0x7c00u;
  } else if (rest >= 0x38800000u) {  // normal: 2^-14 and more
    h = (rest + 0xfffu + ((rest >> 13) & 1) - (112u << 23)) >> 13;
  } else {  // the unit in the last place of 0.5 is 2^-24, that of subnormal halves: the addition rounds
    h = std::bit_cast<std::uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000u;
  }
  return {static_cast<std::uint16_t>(sign | h)};
}

float to_float(bfloat16 b) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(b.bits) << 16);
}

bfloat16 to_bfloat16(float f) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(f);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return {static_cast<std::uint16_t>((bits >> 16) | 0x40u)};
  return {static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1)) >> 16)};
}

void dequantize_row(DType type, const std::byte* row, std::int64_t n, float* out) noexcept {
  switch (type) {
    case DType::f32:
      std::memcpy(out, row, static_cast<std::size_t>(n) * sizeof(float));
      return;
    case DType::f16:
      for (std::int64_t i = 0; i < n; ++i) out[i] = to_float(reinterpret_cast<const half*>(row)[i]);
      return;
    case DType::bf16:
      for (std::int64_t i = 0; i < n; ++i) out[i] = to_float(reinterpret_cast<const bfloat16*>(row)[i]);
      return;
    default:
      break;
  }
  with_block(type, [&]<class Block>() {
    const auto* blocks = reinterpret_cast<const Block*>(row);
    Decoded<Block> decoded;
    for (std::int64_t k = 0; k < n / kTraits<Block>.length; ++k) {
      decode(blocks[k], decoded);
      dequantize(decoded, out + k * kTraits<Block>.length);
    }
  });
}

}  // namespace bankml
