#include "device/cuda/activation.hpp"

#include <limits>
#include <string>

#include "bankml/base/error.hpp"
#include "base/blocks.hpp"

namespace KERNEL_NAMESPACE {

GpuActivation::GpuActivation(Device& device, std::int64_t max_rows, std::int64_t dim, ActFormats formats)
    : Activation(max_rows, dim, formats) {
  const bool super = has(formats, ActFormats::q8_k), small = has(formats, ActFormats::q8);
  const int block = super ? kSuperBlock : small ? kBlock : 1;
  if (max_rows < 1 || dim < 1 || dim % block != 0 || dim > std::numeric_limits<int>::max()) {
    throw Error(ErrorKind::invalid_request, "activation rows: expected a length that is a multiple of " +
                                                std::to_string(block) + ", got " + std::to_string(max_rows) +
                                                " rows of " + std::to_string(dim));
  }
  planes_.dim = static_cast<int>(dim);
  // Two passes over the same list: the first adds up the bytes, the second hands out the addresses.
  std::size_t bytes = 0;
  const auto place = [&]<class T>(T*& plane, bool wanted, std::int64_t per_row) {
    if (!wanted) return;
    if (memory_) plane = reinterpret_cast<T*>(memory_.data() + bytes);
    constexpr std::size_t kAlignment = 256;
    bytes += (static_cast<std::size_t>(max_rows * per_row) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  };
  const auto place_all = [&] {
    bytes = 0;
    place(planes_.f32, has(formats, ActFormats::f32), dim);
    place(planes_.f16, has(formats, ActFormats::f16), dim);
    place(planes_.bf16, has(formats, ActFormats::bf16), dim);
    place(planes_.q8, small, dim);
    place(planes_.q8_d, small, dim / kBlock);
    place(planes_.q8_s, small, dim / kBlock);
    place(planes_.q8k, super, dim);
    place(planes_.q8k_d, super, dim / kSuperBlock);
    place(planes_.q8k_sums, super, dim / 16);
  };
  place_all();
  memory_ = device.allocate(bytes);
  place_all();
}

}  // namespace KERNEL_NAMESPACE
