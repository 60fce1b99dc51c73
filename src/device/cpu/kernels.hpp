#pragma once
// The inner loops, compiled once for each instruction set and reached through a table. Plain structs and pointers only:
// an inline function shared with the rest of the program could end up in it compiled for the wrong instruction set.
#include <cstdint>

#include "bankml/base/numeric.hpp"
#include "device/cpu/isa.hpp"

namespace bankml {

// A row of activations in blocks of 32 (docs/arithmetic.md, 2.3), or the first of several.
struct Q8Row {
  std::int8_t* quants;  // (dim)
  float* scale;         // (dim / 32): d, rounded to half and widened
  float* scaled_sum;    // (dim / 32): s of Q8_1, rounded to half and widened
  std::int32_t* sum;    // (dim / 32): sum of the integers
};

// The same in blocks of 256 (3.1).
struct Q8KRow {
  std::int8_t* quants;  // (dim)
  float* scale;         // (dim / 256)
  std::int16_t* sums;   // (dim / 16): sums of 16 integers
};

// The mat-mul that an output belongs to: some types sum in another order for some counts.
struct MatmulShape {
  std::int64_t rows;  // outputs of the weight
  std::int64_t cols;  // length of a row; a multiple of the block length
  int batch;          // activation rows of the call
  bool repacked;
};

// F32 and F16 in one accumulator of 16 lanes, BF16 in one of 16 pairs (3.4).
constexpr bool sums_in_sixteen_lanes(const MatmulShape& shape) noexcept {
  return shape.batch >= 2 && shape.cols % 16 == 0 && shape.rows % 4 == 0;
}
constexpr bool sums_pairs_in_sixteen_lanes(const MatmulShape& shape) noexcept {
  return shape.batch >= 2 && shape.cols % 32 == 0;
}

// One mat-mul: weight (rows, cols) times `batch` rows of activations, of which a kernel computes a part. Rows of an
// expert are each a mat-mul of one row to the peer: there batch is 1 whatever the number of tokens.
struct MatmulJob {
  const std::uint8_t* quants;  // packed weight (packing.hpp), or its rows as loaded
  const std::uint8_t* meta;
  std::int64_t rows, cols;
  int batch;
  Q8Row q8;
  Q8KRow q8_k;
  const float* f32;
  const float* f16;  // rounded to half and widened again
  const bfloat16* bf16;
  float* out;             // (batch, rows)
  const float* bias;      // (rows) or nullptr
  const float* residual;  // (batch, rows) or nullptr
  float scale;            // 1: none
};

// Computes weight rows [row, row_end) for tokens [token, token_end). Rows begin and end at multiples of 8 or at the
// last row, tokens at multiples of 4 or at the last token.
using MatmulKernel = void (*)(const MatmulJob& job, std::int64_t row, std::int64_t row_end, int token, int token_end);

struct Kernels {
  void (*round_to_f16)(const float* x, std::int64_t n, float* out);
  void (*quantize_q8)(const float* x, std::int64_t n, const Q8Row& out);
  void (*quantize_q8_k)(const float* x, std::int64_t n, const Q8KRow& out);
  // For a packed weight or one in GGUF layout; nullptr: use the portable one, which has all.
  MatmulKernel (*matmul)(DType type, bool packed);
};

const Kernels& kernels(Isa isa) noexcept;

namespace portable {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}

}  // namespace bankml
