#pragma once
// Rows of activations in the forms that the CPU mat-muls multiply. Quantised rows are kept as planes: the integers of a
// row one after the other, scales beside them, already widened; so are the values of rows in half precision.
#include <cstdint>

#include "bankml/device/device.hpp"
#include "device/cpu/kernels.hpp"

namespace bankml {

class CpuActivation final : public Activation {
 public:
  // `kernels` must outlive it. Throws Error(invalid_request) if `dim` is no multiple of the block length that a format
  // needs, Error(out_of_memory).
  CpuActivation(std::int64_t max_rows, std::int64_t dim, ActFormats formats, const Kernels& kernels);
  CpuActivation(std::int64_t max_rows, std::int64_t dim, ActFormats formats, Isa isa)
      : CpuActivation(max_rows, dim, formats, bankml::kernels(isa)) {}

  float* f32() noexcept override { return f32_; }
  const Kernels& kernels() const noexcept { return kernels_; }

  float* f32_row(std::int64_t row) const noexcept { return f32_ + row * dim(); }
  float* f16_row(std::int64_t row) const noexcept { return f16_ + row * dim(); }
  bfloat16* bf16_row(std::int64_t row) const noexcept { return bf16_ + row * dim(); }
  Q8Row q8_row(std::int64_t row) const noexcept {
    const std::int64_t blocks = dim() / 32;
    return {q8_ + row * dim(), q8_scale_ + row * blocks, q8_scaled_sum_ + row * blocks, q8_sum_ + row * blocks};
  }
  Q8KRow q8_k_row(std::int64_t row) const noexcept {
    return {q8k_ + row * dim(), q8k_scale_ + row * (dim() / 256), q8k_sums_ + row * (dim() / 16)};
  }

 private:
  const Kernels& kernels_;
  Buffer memory_;
  float* f32_ = nullptr;
  float* f16_ = nullptr;
  bfloat16* bf16_ = nullptr;
  std::int8_t* q8_ = nullptr;
  float *q8_scale_ = nullptr, *q8_scaled_sum_ = nullptr;
  std::int32_t* q8_sum_ = nullptr;
  std::int8_t* q8k_ = nullptr;
  float* q8k_scale_ = nullptr;
  std::int16_t* q8k_sums_ = nullptr;
};

// Writes the floats x (out.dim()) into row `row` of every format of `out`; x may be that row of out.f32(). Rows may be
// written from different threads at once.
void quantize_row(CpuActivation& out, std::int64_t row, const float* x);

}  // namespace bankml
