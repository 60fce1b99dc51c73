#include "device/cpu/weight.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "bankml/base/error.hpp"
#include "device/cpu/memory.hpp"
#include "device/cpu/packing.hpp"

namespace bankml {
namespace {

// Whether the kernels' layout serves a weight: the types that the peer repacks add up in another way where it can't.
bool is_packable(DType type, std::int64_t rows) noexcept {
  bool packable = false;
  with_block(type, [&]<class Block>() { packable = !Packing<Block>::one_sum || rows % kGroup == 0; });
  return packable;
}

}  // namespace

CpuWeight::CpuWeight(ThreadPool& pool, MemoryArena& arena, DType type, int experts, std::int64_t rows,
                     std::int64_t cols, const std::byte* data, std::size_t stride)
    : Weight(type, rows, cols, experts),
      quants_(reinterpret_cast<const std::uint8_t*>(data)),
      quants_stride_(static_cast<std::int64_t>(stride)) {
  const DTypeInfo& info = dtype_info(type);
  if (rows < 1 || cols < 1 || cols % info.block_len != 0) {
    throw Error(ErrorKind::invalid_request, std::string(info.name) + " weight: expected rows that are multiples of " +
                                                std::to_string(info.block_len) + " long, got " + std::to_string(rows) +
                                                " rows of " + std::to_string(cols));
  }
  Buffer aligned;
  const std::size_t alignment = type == DType::f32 ? alignof(float) : alignof(half);
  if (reinterpret_cast<std::uintptr_t>(data) % alignment != 0) {  // a file may align its tensors to one byte
    const std::size_t bytes = row_bytes(type, cols) * static_cast<std::size_t>(rows);
    aligned = arena.allocate(bytes * static_cast<std::size_t>(experts));
    for (std::size_t e = 0; e < static_cast<std::size_t>(experts); ++e) {
      std::memcpy(aligned.data() + e * bytes, data + e * stride, bytes);
    }
    quants_ = aligned.as<std::uint8_t>();
    quants_stride_ = static_cast<std::int64_t>(bytes);
  }
  if (is_packable(type, rows)) {
    with_block(type,
               [&]<class Block>() { pack_rows<Block>(pool, arena, reinterpret_cast<const std::byte*>(quants_)); });
  } else {
    memory_ = std::move(aligned);
  }
}

template <class Block>
void CpuWeight::pack_rows(ThreadPool& pool, MemoryArena& arena, const std::byte* data) {
  using P = Packing<Block>;
  const std::int64_t n = cols() / kTraits<Block>.length;
  const std::int64_t groups_each = (rows() + kGroup - 1) / kGroup, groups = experts() * groups_each;
  constexpr std::size_t kAlignment = 64;
  const std::size_t quant_bytes =
      (static_cast<std::size_t>(groups * n) * P::quant_bytes + kAlignment - 1) / kAlignment * kAlignment;
  memory_ = arena.allocate(quant_bytes + static_cast<std::size_t>(groups * n) * P::meta_bytes);
  auto* const quants = memory_.as<std::uint8_t>();
  std::uint8_t* const meta = quants + quant_bytes;
  pool.for_each(groups, [&](std::int64_t group) {
    std::memset(quants + group * n * P::quant_bytes, 0, static_cast<std::size_t>(n * P::quant_bytes));
    std::memset(meta + group * n * P::meta_bytes, 0, static_cast<std::size_t>(n * P::meta_bytes));
    const std::int64_t row = group % groups_each * kGroup;
    const auto* blocks = reinterpret_cast<const Block*>(data + group / groups_each * quants_stride_) + row * n;
    const std::int64_t in_group = std::min<std::int64_t>(kGroup, rows() - row);
    for (int r = 0; r < in_group; ++r) {
      for (std::int64_t k = 0; k < n; ++k) {
        Decoded<Block> decoded;
        decode(blocks[r * n + k], decoded);
        pack(decoded, r, quants + (group * n + k) * P::quant_bytes, meta + (group * n + k) * P::meta_bytes);
      }
    }
  });
  quants_ = quants;
  meta_ = meta;
  quants_stride_ = groups_each * n * P::quant_bytes;
  meta_stride_ = groups_each * n * P::meta_bytes;
}

void CpuWeight::dequantize(std::int64_t row, float* out) const noexcept {
  if (!packed()) {
    const auto* rows_as_loaded = reinterpret_cast<const std::byte*>(quants_);
    dequantize_row(type(), rows_as_loaded + static_cast<std::size_t>(row) * row_bytes(type(), cols()), cols(), out);
    return;
  }
  with_block(type(), [&]<class Block>() {
    using P = Packing<Block>;
    const std::int64_t n = cols() / kTraits<Block>.length;
    Decoded<Block> decoded;
    for (std::int64_t k = 0; k < n; ++k) {
      const std::int64_t piece = row / kGroup * n + k;
      unpack(quants_ + piece * P::quant_bytes, meta_ + piece * P::meta_bytes, static_cast<int>(row % kGroup), decoded);
      bankml::dequantize(decoded, out + k * kTraits<Block>.length);
    }
  });
}

}  // namespace bankml
