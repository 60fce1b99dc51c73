#include "device/cpu/reference.hpp"

#include <vector>

#include "device/cpu/reference_dot.hpp"

namespace bankml {

float reference_dot(DType type, const MatmulShape& shape, const std::byte* row, const CpuActivation& a, int token) {
  switch (type) {
    case DType::f32:
      return reference::dot_float(shape, reinterpret_cast<const float*>(row), a.f32_row(token));
    case DType::f16:
      return reference::dot_float(shape, reinterpret_cast<const half*>(row), a.f16_row(token));
    case DType::bf16:
      return reference::dot_float(shape, reinterpret_cast<const bfloat16*>(row), a.bf16_row(token));
    default:
      break;
  }
  float sum = 0;
  with_block(type, [&]<class Block>() {
    const auto* blocks = reinterpret_cast<const Block*>(row);
    std::vector<Decoded<Block>> decoded(static_cast<std::size_t>(shape.cols / kTraits<Block>.length));
    for (std::size_t k = 0; k < decoded.size(); ++k) decode(blocks[k], decoded[k]);
    constexpr bool small = kTraits<Block>.length == kBlock;
    sum = reference::dot_decoded(shape, decoded.data(), small ? a.q8_row(token) : Q8Row{},
                                 small ? Q8KRow{} : a.q8_k_row(token), token);
  });
  return sum;
}

namespace {

// Ties to even. The product of a finite row is finite.
std::int8_t round_to_int8(float x) noexcept {
  return std::isfinite(x) ? static_cast<std::int8_t>(std::clamp(std::nearbyint(x), -128.0f, 127.0f)) : std::int8_t{0};
}

// n / max, or 0 where max is 0 or so small that the quotient is infinite: the scale of such a block is 0 too.
float quotient(float n, float max) noexcept {
  const float q = n / max;
  return max != 0 && std::isfinite(q) ? q : 0.0f;
}

}  // namespace

void reference_quantize_q8(const float* x, std::int64_t n, const Q8Row& out) noexcept {
  for (std::int64_t k = 0; k < n / kBlock; ++k, x += kBlock) {
    float max = 0;
    for (int e = 0; e < kBlock; ++e) max = std::max(max, std::fabs(x[e]));
    const float d = max / 127.0f;
    const float inverse = quotient(127.0f, max);  // not 1 / d, which rounds twice
    std::int32_t sum = 0;
    for (int e = 0; e < kBlock; ++e) {
      const std::int8_t q = round_to_int8(x[e] * inverse);
      out.quants[k * kBlock + e] = q;
      sum += q;
    }
    out.scale[k] = to_float(to_half(d));
    out.scaled_sum[k] = to_float(to_half(d * static_cast<float>(sum)));
    out.sum[k] = sum;
  }
}

void reference_quantize_q8_k(const float* x, std::int64_t n, const Q8KRow& out) noexcept {
  for (std::int64_t k = 0; k < n / kSuperBlock; ++k, x += kSuperBlock) {
    float max = 0;  // with its sign; the first of several equally large ones
    for (int e = 0; e < kSuperBlock; ++e) {
      if (std::fabs(x[e]) > std::fabs(max)) max = x[e];
    }
    const float scale = quotient(-127.0f, max);
    for (int g = 0; g < kSuperBlock / 16; ++g) {
      int sum = 0;
      for (int e = 16 * g; e < 16 * g + 16; ++e) {
        const std::int8_t q = round_to_int8(scale * x[e]);  // at most 127 in size but for the rounding of the scale
        out.quants[k * kSuperBlock + e] = q;
        sum += q;
      }
      out.sums[k * 16 + g] = static_cast<std::int16_t>(sum);
    }
    out.scale[k] = quotient(1.0f, scale);
  }
}

}  // namespace bankml
