// The operations that move rows: embedding lookup, quantisation, gathering.
#include <cstring>

#include "device/cpu/activation.hpp"
#include "device/cpu/ops.hpp"
#include "device/cpu/weight.hpp"

namespace bankml {

void CpuOps::embed(Stream&, float* x, const Weight& table, const std::int32_t* tokens, int rows, float scale) {
  const auto& weight = static_cast<const CpuWeight&>(table);
  pool_.for_each(rows, [&](std::int64_t r) {
    float* row = x + r * weight.cols();
    weight.dequantize(tokens[r], row);
    if (scale == 1.0f) return;
    for (std::int64_t i = 0; i < weight.cols(); ++i) row[i] *= scale;
  });
}

void CpuOps::quantize(Stream&, Activation& out, const float* x, int rows) {
  auto& activation = static_cast<CpuActivation&>(out);
  pool_.for_each(rows, [&](std::int64_t r) { quantize_row(activation, r, x + r * activation.dim()); });
}

void CpuOps::gather_rows(Stream&, float* dst, const float* src, const std::int32_t* rows, int n, int dim) {
  for (int i = 0; i < n; ++i) {
    std::memcpy(dst + std::int64_t{i} * dim, src + std::int64_t{rows[i]} * dim,
                static_cast<std::size_t>(dim) * sizeof(float));
  }
}

}  // namespace bankml
