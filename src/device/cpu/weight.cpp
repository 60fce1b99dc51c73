#include "device/cpu/weight.hpp"

#include <cstring>
#include <string>

#include "bankml/base/error.hpp"
#include "device/cpu/memory.hpp"

namespace bankml {

CpuWeight::CpuWeight(DType type, std::int64_t rows, std::int64_t cols, const std::byte* data)
    : Weight(type, rows, cols), data_(data) {
  const DTypeInfo& info = dtype_info(type);
  if (rows < 1 || cols < 1 || cols % info.block_len != 0) {
    throw Error(ErrorKind::invalid_request, std::string(info.name) + " weight: expected rows that are multiples of " +
                                                std::to_string(info.block_len) + " long, got " + std::to_string(rows) +
                                                " rows of " + std::to_string(cols));
  }
  stride_ = row_bytes(type, cols);
  const std::size_t alignment = type == DType::f32 ? alignof(float) : alignof(half);
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {  // a file may align its tensors to one byte
    memory_ = allocate_memory(stride_ * static_cast<std::size_t>(rows));
    std::memcpy(memory_.data(), data, memory_.bytes());
    data_ = memory_.data();
  }
}

void CpuWeight::dequantize(std::int64_t row, float* out) const noexcept {
  dequantize_row(type(), source_row(row), cols(), out);
}

}  // namespace bankml
