// Which kernel multiplies.
#include "kernels.cuh"

namespace KERNEL_NAMESPACE {

void matmul(Stream& stream, const MatmulPart* parts, int n, const ActivationPlanes& a, int rows) {
  if (rows <= kVecRows) return matmul_vec(stream, parts, n, a, rows);
  if (dtype_info(parts[0].weight.type).block_len == 1) return matmul_float(stream, parts, n, a, rows);
  matmul_tiles(stream, parts, n, a, rows);
}

}  // namespace KERNEL_NAMESPACE
