#pragma once
// Weights in the memory of a GPU, as planes (planes.hpp).
#include <memory>
#include <span>

#include "bankml/device/device.hpp"
#include "device/cuda/planes.hpp"
#include "namespace.hpp"

namespace KERNEL_NAMESPACE {

// Host memory, as long as the planes of so many rows.
struct PlaneBytes {
  std::uint8_t *low = nullptr, *high = nullptr, *sub = nullptr, *scale = nullptr;
};
struct PlaneSizes {
  std::size_t low = 0, high = 0, sub = 0, scale = 0;
};

// Bytes of one row in each plane.
PlaneSizes plane_row_bytes(DType type, std::int64_t cols) noexcept;

// Rows in GGUF layout, `rows` of them one after the other, to planes.
void pack_planes(DType type, const std::byte* data, std::int64_t rows, std::int64_t cols, const PlaneBytes& out);

class GpuWeight final : public Weight {
 public:
  GpuWeight(const WeightPlanes& planes, int experts, Buffer memory) noexcept
      : Weight(planes.type, planes.rows, planes.cols, experts), planes_(planes), memory_(std::move(memory)) {}

  bool uses_source() const noexcept override { return false; }
  std::size_t device_bytes() const noexcept override { return memory_.bytes(); }
  const WeightPlanes& planes() const noexcept { return planes_; }

 private:
  WeightPlanes planes_;
  Buffer memory_;
};

// Packs weights on the host, on several threads, and copies them to the device while the next piece is packed.
class WeightLoader {
 public:
  explicit WeightLoader(Device& device) noexcept : device_(device) {}

  // As Device::load_experts(). Throws Error(invalid_request) for a shape that the type can't have,
  // Error(out_of_memory), Error(device).
  std::unique_ptr<Weight> load(DType type, int experts, std::int64_t rows, std::int64_t cols, const std::byte* data,
                               std::size_t stride);

 private:
  struct Staging {
    Buffer memory;
    std::unique_ptr<Event> copied;
  };
  void prepare();

  Device& device_;
  std::unique_ptr<Stream> stream_;
  Staging staging_[2];
};

}  // namespace KERNEL_NAMESPACE
