#pragma once
// Matrix products by the vendor's library, where it is installed.
#include <cstdint>

#include "bankml/base/numeric.hpp"
#include "namespace.hpp"

namespace bankml {
class Stream;
}

namespace KERNEL_NAMESPACE {

// What becomes of a product: scale * product, added to what lies in the output if `add`.
struct ProductUse {
  float scale = 1.0f;
  bool add = false;
};

// out (rows, outputs) = a (rows, k) times the transpose of w (outputs, k), both of `type`: f32, f16 or bf16; f32
// accumulators and results. All device memory. False, with nothing queued, where there is no library: the caller has a
// kernel of its own. Throws Error(device).
bool library_matmul(Stream& stream, DType type, float* out, const void* w, const void* a, int rows,
                    std::int64_t outputs, std::int64_t k, ProductUse use);

}  // namespace KERNEL_NAMESPACE
