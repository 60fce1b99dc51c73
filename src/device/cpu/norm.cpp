#include <algorithm>
#include <cmath>

#include "device/cpu/activation.hpp"
#include "device/cpu/float_kernels.hpp"
#include "device/cpu/norm.hpp"
#include "device/cpu/ops.hpp"
#include "device/cpu/scratch.hpp"

namespace bankml {
namespace {

// The sum of a row is one chain of additions; rows side by side hide its latency.
constexpr int kRowsAtOnce = 4;

template <int kRows>
void sum_squares(const float* x, std::int64_t stride, int n, double* sums) {
  double sum[kRows] = {};
  for (int i = 0; i < n; ++i) {
    for (int r = 0; r < kRows; ++r) {
      const float value = x[r * stride + i];
      sum[r] += static_cast<double>(value * value);
    }
  }
  std::copy_n(sum, kRows, sums);
}

// 1 / sqrt(mean square + eps) of `rows` rows, at most kRowsAtOnce.
void rms_scales(float* scales, const float* x, int rows, int dim, float eps) {
  double sums[kRowsAtOnce];
  if (rows == kRowsAtOnce) {
    sum_squares<kRowsAtOnce>(x, dim, dim, sums);
  } else {
    for (int r = 0; r < rows; ++r) sum_squares<1>(x + static_cast<std::int64_t>(r) * dim, 0, dim, sums + r);
  }
  for (int r = 0; r < rows; ++r) {
    const float mean = static_cast<float>(sums[r] / dim);
    scales[r] = 1.0f / std::sqrt(mean + eps);
  }
}

// Calls f(row, scale of the row) for all rows, several at a time on each thread.
template <class F>
void for_each_scaled_row(ThreadPool& pool, const float* x, int rows, int dim, float eps, std::size_t bytes, F&& f) {
  for_each_with_scratch(pool, (rows + kRowsAtOnce - 1) / kRowsAtOnce, bytes,
                        [&](std::int64_t group, std::byte* memory) {
                          const std::int64_t first = group * kRowsAtOnce;
                          const int count = static_cast<int>(std::min<std::int64_t>(kRowsAtOnce, rows - first));
                          float scales[kRowsAtOnce];
                          rms_scales(scales, x + first * dim, count, dim, eps);
                          for (int r = 0; r < count; ++r) f(first + r, scales[r], memory);
                        });
}

}  // namespace

void rms_norm_heads(const FloatKernels& kernel, float* out, const float* x, const float* weight, int heads,
                    int head_dim, float eps) {
  for (int first = 0; first < heads; first += kRowsAtOnce) {
    const int count = std::min(kRowsAtOnce, heads - first);
    float scales[kRowsAtOnce];
    rms_scales(scales, x + first * head_dim, count, head_dim, eps);
    for (int r = first; r < first + count; ++r) {
      kernel.norm_row(out + r * head_dim, x + r * head_dim, scales[r - first], weight, nullptr, head_dim);
    }
  }
}

void CpuOps::rms_norm(Stream&, Activation& out, const float* x, const float* weight, int rows, float eps) {
  auto& activation = static_cast<CpuActivation&>(out);
  const int dim = static_cast<int>(out.dim());
  const bool floats = has(out.formats(), ActFormats::f32);
  const std::size_t bytes = floats ? 0 : static_cast<std::size_t>(dim) * sizeof(float);
  for_each_scaled_row(pool_, x, rows, dim, eps, bytes, [&](std::int64_t row, float scale, std::byte* memory) {
    float* y = floats ? activation.f32_row(row) : reinterpret_cast<float*>(memory);
    floats_.norm_row(y, x + row * dim, scale, weight, nullptr, dim);
    quantize_row(activation, row, y);
  });
}

void CpuOps::rms_norm(Stream&, float* out, const float* x, const float* weight, int rows, int dim, float eps) {
  for_each_scaled_row(pool_, x, rows, dim, eps, 0, [&](std::int64_t row, float scale, std::byte*) {
    floats_.norm_row(out + row * dim, x + row * dim, scale, weight, nullptr, dim);
  });
}

void CpuOps::rms_norm_add(Stream&, float* x, const float* branch, const float* weight, int rows, int dim, float eps) {
  for_each_scaled_row(pool_, branch, rows, dim, eps, 0, [&](std::int64_t row, float scale, std::byte*) {
    floats_.norm_row(x + row * dim, branch + row * dim, scale, weight, x + row * dim, dim);
  });
}

}  // namespace bankml
