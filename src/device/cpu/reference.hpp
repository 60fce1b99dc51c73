#pragma once
// Mat-mul and activation quantisation written as the text of docs/arithmetic.md says them, one output at a time:
// the truth that the tests hold the kernels to, the portable kernels, and what rare combinations of type and shape run
// on.
#include <cstdint>

#include "device/cpu/activation.hpp"

namespace bankml {

// Whether llama-server keeps such a weight repacked, which gives other sums (3.3).
constexpr bool is_repacked(DType type, std::int64_t rows) noexcept {
  return rows % 8 == 0 && (type == DType::q4_0 || type == DType::q4_k || type == DType::q2_k || type == DType::iq4_nl ||
                           type == DType::mxfp4);
}

// Product of one weight row in GGUF layout with row `token` of `a`.
float reference_dot(DType type, const MatmulShape& shape, const std::byte* row, const CpuActivation& a, int token);

void reference_quantize_q8(const float* x, std::int64_t n, const Q8Row& out) noexcept;
void reference_quantize_q8_k(const float* x, std::int64_t n, const Q8KRow& out) noexcept;

}  // namespace bankml
