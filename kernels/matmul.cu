// Which kernel multiplies.
#include "device/cuda/library_matmul.hpp"
#include "kernels.cuh"

namespace KERNEL_NAMESPACE {
namespace {

bool is_float(const MatmulPart& part) {
  return dtype_info(part.weight.type).block_len == 1;
}

// Whether the vendor's library has multiplied: it scales, and adds to what lies in the output; a bias is added
// afterwards.
bool multiply_by_library(Stream& stream, const MatmulPart& part, const ActivationPlanes& a, int rows) {
  const WeightPlanes& w = part.weight;
  const void* x = w.type == DType::f32   ? static_cast<const void*>(a.f32)
                  : w.type == DType::f16 ? static_cast<const void*>(a.f16)
                                         : a.bf16;
  const bool adds = part.residual == part.out;
  if (!part.bias && (adds || !part.residual)) {
    return library_matmul(stream, w.type, part.out, w.low, x, rows, w.rows, w.cols, {part.scale, adds});
  }
  if (adds || !library_matmul(stream, w.type, part.out, w.low, x, rows, w.rows, w.cols, {})) return false;
  finish_outputs(stream, part, rows);
  return true;
}

}  // namespace

void matmul(Stream& stream, const MatmulPart* parts, int n, const ActivationPlanes& a, int rows) {
  if (rows <= kVecRows) return matmul_vec(stream, parts, n, a, rows);
  if (!is_float(parts[0])) return matmul_tiles(stream, parts, n, a, rows);
  if (rows <= kLibraryRows) return matmul_float(stream, parts, n, a, rows);
  for (int p = 0; p < n; ++p) {
    if (!multiply_by_library(stream, parts[p], a, rows)) matmul_float(stream, parts + p, 1, a, rows);
  }
}

// Few rows rarely share experts, and a tile takes as long for one pair as for all that it has room for.
void matmul_experts(Stream& stream, const MatmulPart& part, const ActivationPlanes& a, const ExpertPairs& pairs) {
  if (pairs.tile && !is_float(part)) return matmul_expert_tiles(stream, part, a, pairs);
  matmul_expert_vec(stream, part, a, pairs);
}

}  // namespace KERNEL_NAMESPACE
