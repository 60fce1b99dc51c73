#pragma once
// A weight matrix on the CPU: either the bytes it was loaded from, or a copy packed for the kernels.
#include <cstdint>

#include "bankml/device/device.hpp"

namespace bankml {

class CpuWeight final : public Weight {
 public:
  // Throws Error(invalid_request) for a shape that the type can't have, Error(out_of_memory).
  CpuWeight(DType type, std::int64_t rows, std::int64_t cols, const std::byte* data);

  bool uses_source() const noexcept override { return !memory_; }
  std::size_t device_bytes() const noexcept override { return memory_.bytes(); }

  const std::byte* data() const noexcept { return data_; }
  // Row `row` in GGUF layout.
  const std::byte* source_row(std::int64_t row) const noexcept {
    return data_ + row * static_cast<std::int64_t>(stride_);
  }
  // Widens row `row` to cols() floats.
  void dequantize(std::int64_t row, float* out) const noexcept;

 private:
  std::size_t stride_;
  Buffer memory_;
  const std::byte* data_;
};

}  // namespace bankml
