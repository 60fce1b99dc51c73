// Divides mat-muls among the threads: over rows of the weights and, where there are many, over tokens; never over the
// length of a row, which would change the sums.
#include <algorithm>

#include "device/cpu/activation.hpp"
#include "device/cpu/ops.hpp"
#include "device/cpu/reference.hpp"
#include "device/cpu/weight.hpp"

namespace bankml {
namespace {

void reference_matmul(const MatmulOutput& output, const CpuActivation& a, int batch, std::int64_t row) {
  const auto& weight = static_cast<const CpuWeight&>(*output.weight);
  const MatmulShape shape{weight.rows(), weight.cols(), batch, is_repacked(weight.type(), weight.rows())};
  for (int token = 0; token < batch; ++token) {
    float sum = reference_dot(weight.type(), shape, weight.source_row(row), a, token);
    const std::int64_t at = token * weight.rows() + row;
    if (output.bias) sum += output.bias[row];
    if (output.scale != 1.0f) sum *= output.scale;
    if (output.residual) sum += output.residual[at];
    output.out[at] = sum;
  }
}

}  // namespace

void CpuOps::matmul(Stream&, std::span<const MatmulOutput> outputs, const Activation& a, int rows) {
  const auto& activation = static_cast<const CpuActivation&>(a);
  for (const MatmulOutput& output : outputs) {
    pool_.for_each(output.weight->rows(), [&](std::int64_t row) { reference_matmul(output, activation, rows, row); });
  }
}

}  // namespace bankml
