#pragma once
#include <array>
#include <cstddef>
#include <cstdint>

#include "bankml/model/model.hpp"

namespace bankml {

// The integers of a batch, in pinned memory and on the device, laid out alike: one copy a forward pass.
class BatchArrays {
 public:
  // `strides`: blocks of a sequence at most, for each part.
  BatchArrays(Device& device, const TransformerLimits& limits, std::array<std::int64_t, kKvParts.size()> strides)
      : strides_(strides), rows_(limits.max_rows), sequences_(limits.max_sequences) {
    const std::size_t rows = static_cast<std::size_t>(rows_), sequences = static_cast<std::size_t>(sequences_);
    const std::size_t addresses = sequences * static_cast<std::size_t>(strides_[0] + strides_[1]) * sizeof(std::byte*);
    bytes_ = addresses + ((4 + kKvParts.size()) * rows + 2 * kKvParts.size() * sequences) * sizeof(std::int32_t);
    host_ = device.allocate_host(bytes_);
    device_ = device.allocate(bytes_);
  }

  // Addresses first: they need the larger alignment.
  std::byte** blocks(KvPart part) noexcept {
    return host_.as<std::byte*>() + (part == KvPart::full ? 0 : sequences_ * strides_[0]);
  }
  std::int64_t blocks_stride(KvPart part) const noexcept { return strides_[static_cast<std::size_t>(part)]; }
  std::int32_t* tokens() noexcept { return ints(); }
  std::int32_t* position() noexcept { return ints() + rows_; }
  std::int32_t* sequence() noexcept { return ints() + 2 * rows_; }
  std::int32_t* logit_rows() noexcept { return ints() + 3 * rows_; }
  std::int32_t* cell(KvPart part) noexcept { return ints() + (4 + static_cast<int>(part)) * rows_; }
  std::int32_t* cells(KvPart part) noexcept { return counts() + 2 * static_cast<int>(part) * sequences_; }
  std::int32_t* padded_cells(KvPart part) noexcept { return cells(part) + sequences_; }

  template <class T>
  const T* on_device(const T* host) const noexcept {
    return reinterpret_cast<const T*>(device_.data() + (reinterpret_cast<const std::byte*>(host) - host_.data()));
  }
  void upload(Stream& stream) { stream.copy_to_device(device_.data(), host_.data(), bytes_); }

 private:
  std::int32_t* ints() const noexcept {
    return reinterpret_cast<std::int32_t*>(host_.as<std::byte*>() + sequences_ * (strides_[0] + strides_[1]));
  }
  std::int32_t* counts() const noexcept { return ints() + (4 + static_cast<int>(kKvParts.size())) * rows_; }

  std::array<std::int64_t, kKvParts.size()> strides_;
  int rows_, sequences_;
  std::size_t bytes_ = 0;
  Buffer host_, device_;
};

}  // namespace bankml
