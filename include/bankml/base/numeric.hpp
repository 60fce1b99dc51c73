#pragma once
// Tensor element types of GGUF files and the two 16-bit float formats.
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bankml {

// Type ids as they stand in a GGUF file (the GGUF specification, tensor types). Only the types that bankmld computes
// with.
enum class DType : std::int32_t {
  f32 = 0,
  f16 = 1,
  q4_0 = 2,
  q4_1 = 3,
  q5_0 = 6,
  q5_1 = 7,
  q8_0 = 8,
  q2_k = 10,
  q3_k = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
  iq4_nl = 20,
  iq4_xs = 23,
  bf16 = 30,
  mxfp4 = 39,
};

struct DTypeInfo {
  std::string_view name;     // as GGUF tools print it: "Q4_1"
  std::int32_t block_len;    // elements of a block
  std::int32_t block_bytes;  // bytes of a block
};

// nullptr if the id isn't one of DType.
const DTypeInfo* find_dtype(std::int32_t id) noexcept;
const DTypeInfo& dtype_info(DType type) noexcept;

// Bytes of a row of `n` elements; `n` is a multiple of the type's block length.
inline std::size_t row_bytes(DType type, std::int64_t n) noexcept {
  const DTypeInfo& info = dtype_info(type);
  return static_cast<std::size_t>(n / info.block_len * info.block_bytes);
}

// IEEE binary16, for storage: arithmetic happens in float. Widening is exact; narrowing rounds to nearest even,
// overflow gives infinity, NaN stays a quiet NaN.
struct half {
  std::uint16_t bits;
};
float to_float(half h) noexcept;
half to_half(float f) noexcept;

// The upper 16 bits of a float, rounded to nearest even.
struct bfloat16 {
  std::uint16_t bits;
};
float to_float(bfloat16 b) noexcept;
bfloat16 to_bfloat16(float f) noexcept;

// Widens a row of `n` elements of any type to float, by the formulas of the format (one rounding where the peer has
// one: for the embedding lookup). `n` is a multiple of the block length.
void dequantize_row(DType type, const std::byte* row, std::int64_t n, float* out) noexcept;

}  // namespace bankml
