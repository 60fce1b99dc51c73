#pragma once
// A weight matrix on the CPU: packed for the kernels (packing.hpp), or the bytes it was loaded from.
#include <cstdint>

#include "bankml/device/device.hpp"
#include "device/cpu/kernels.hpp"
#include "device/cpu/memory.hpp"
#include "device/cpu/thread_pool.hpp"

namespace bankml {

class CpuWeight final : public Weight {
 public:
  // Throws Error(invalid_request) for a shape that the type can't have, Error(out_of_memory).
  CpuWeight(ThreadPool& pool, MemoryArena& arena, DType type, int experts, std::int64_t rows, std::int64_t cols,
            const std::byte* data, std::size_t stride);
  CpuWeight(ThreadPool& pool, MemoryArena& arena, DType type, std::int64_t rows, std::int64_t cols,
            const std::byte* data)
      : CpuWeight(pool, arena, type, 1, rows, cols, data, 0) {}

  bool uses_source() const noexcept override { return !memory_; }
  std::size_t device_bytes() const noexcept override { return memory_.bytes(); }

  bool packed() const noexcept { return meta_ != nullptr; }
  const std::uint8_t* quants(std::int64_t expert = 0) const noexcept { return quants_ + expert * quants_stride_; }
  const std::uint8_t* meta(std::int64_t expert = 0) const noexcept { return meta_ + expert * meta_stride_; }
  // Widens row `row` of the first matrix to cols() floats.
  void dequantize(std::int64_t row, float* out) const noexcept;

 private:
  template <class Block>
  void pack_rows(ThreadPool& pool, MemoryArena& arena, const std::byte* data);

  Buffer memory_;
  const std::uint8_t* quants_;
  const std::uint8_t* meta_ = nullptr;
  std::int64_t quants_stride_ = 0, meta_stride_ = 0;  // bytes of a matrix
};

}  // namespace bankml
