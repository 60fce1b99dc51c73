#pragma once
// The rotation in front of a quantised KV cache: it spreads outliers over all elements of a head.
#include "bankml/base/numeric.hpp"

namespace bankml {

inline constexpr int kValueRotation = 64;  // elements of V rotated together, and of the attention's output

// Elements of Q and K rotated together: the largest power of two that divides head_dim, if that is at least 64; else 0.
constexpr int key_rotation(DType type_k, int head_dim) noexcept {
  const int width = head_dim & -head_dim;
  return type_k == DType::q8_0 && width >= 64 ? width : 0;
}
constexpr int value_rotation(DType type_v, int head_dim) noexcept {
  return type_v == DType::q8_0 && head_dim % kValueRotation == 0 ? kValueRotation : 0;
}

// Multiplies each `width` elements of x (n) by the orthonormal Walsh-Hadamard matrix, its own inverse; width 0: nothing
// (docs/exact-arithmetic.md, 4).
void walsh_hadamard(float* x, int n, int width) noexcept;

}  // namespace bankml
