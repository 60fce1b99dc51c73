#include "device/cuda/weight.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "bankml/base/error.hpp"
#include "device/cpu/packing.hpp"

namespace KERNEL_NAMESPACE {
namespace {

constexpr std::size_t kStagingBytes = std::size_t{4} << 20;  // of each of two pieces
constexpr std::size_t kAlignment = 256;                      // of planes
constexpr std::size_t kThreadBytes = 1 << 20;  // of a piece, below which a thread of its own costs more than it saves
constexpr unsigned kMaxThreads = 16;

std::size_t align(std::size_t bytes) noexcept {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// `bits` bits of each of a unit's codes from bit `first` on; `out` is zero before.
template <int kBits>
void pack_bits(const std::uint8_t* codes, int first, std::uint8_t* out) noexcept {
  for (int e = 0; e < kUnit; ++e) {
    const PlaneBits at = plane_bits(kBits, e);
    out[at.byte] = static_cast<std::uint8_t>(out[at.byte] | ((codes[e] >> first) & ((1 << kBits) - 1)) << at.shift);
  }
}

template <class Block>
void pack_sub(const Decoded<Block>& block, int unit, std::uint8_t* out) noexcept {
  using Layout = PlaneLayout<Block>;
  const auto byte = [](int value) { return static_cast<std::uint8_t>(value); };
  if constexpr (Layout::halves == 2) {
    for (int h = 0; h < 2; ++h) {
      const int scale = block.scale[2 * unit + h], min = block.min[2 * unit + h];
      out[h] = Layout::traits.minimum ? byte(scale | min << 4) : byte(scale);
    }
  } else {
    out[0] = byte(block.scale[unit]);
    if constexpr (Layout::traits.minimum) out[1] = byte(block.min[unit]);
  }
}

template <class Block>
void pack_block(const Block& source, std::int64_t index, const PlaneBytes& out) noexcept {
  using Layout = PlaneLayout<Block>;
  constexpr BlockTraits traits = Layout::traits;
  Decoded<Block> block;
  decode(source, block);
  std::uint8_t codes[traits.length];
  for (int e = 0; e < traits.length; ++e) codes[e] = static_cast<std::uint8_t>(detail::code_of<Block>(block.q[e]));
  for (int unit = 0; unit < Layout::units; ++unit) {
    const std::int64_t at = index * Layout::units + unit;
    std::uint8_t* low = out.low + at * Layout::low_bytes;
    std::memset(low, 0, Layout::low_bytes);
    pack_bits<traits.low_bits>(codes + unit * kUnit, 0, low);
    if constexpr (traits.high_bits != 0) {
      std::uint8_t* high = out.high + at * Layout::high_bytes;
      std::memset(high, 0, Layout::high_bytes);
      pack_bits<traits.high_bits>(codes + unit * kUnit, traits.low_bits, high);
    }
    if constexpr (Layout::super) pack_sub(block, unit, out.sub + at * Layout::sub_bytes);
  }
  std::uint8_t* scale = out.scale + index * Layout::scale_bytes;
  std::memcpy(scale, &block.d, sizeof block.d);
  if constexpr (traits.minimum) std::memcpy(scale + sizeof block.d, &block.m, sizeof block.m);
}

// Packs rows on as many threads as are worth it.
void pack_in_parallel(DType type, const std::byte* data, std::int64_t rows, std::int64_t cols, const PlaneBytes& out) {
  const std::size_t bytes = row_bytes(type, cols) * static_cast<std::size_t>(rows);
  const unsigned cores = std::clamp(std::thread::hardware_concurrency(), 1u, kMaxThreads);
  const auto threads = static_cast<std::int64_t>(std::min<std::size_t>(cores, 1 + bytes / kThreadBytes));
  const std::int64_t each = (rows + threads - 1) / threads;
  const PlaneSizes row = plane_row_bytes(type, cols);
  const auto pack = [&](std::int64_t first) {
    const auto offset = static_cast<std::size_t>(first);
    const PlaneBytes part{out.low + offset * row.low, out.high + offset * row.high, out.sub + offset * row.sub,
                          out.scale + offset * row.scale};
    pack_planes(type, data + offset * row_bytes(type, cols), std::min(each, rows - first), cols, part);
  };
  std::vector<std::jthread> helpers;
  for (std::int64_t first = each; first < rows; first += each) helpers.emplace_back(pack, first);
  pack(0);
}

}  // namespace

PlaneSizes plane_row_bytes(DType type, std::int64_t cols) noexcept {
  PlaneSizes sizes{.low = row_bytes(type, cols)};
  with_block(type, [&]<class Block>() {
    using Layout = PlaneLayout<Block>;
    const auto units = static_cast<std::size_t>(cols / kUnit);
    sizes = {units * Layout::low_bytes, units * Layout::high_bytes, units * Layout::sub_bytes,
             units / Layout::units * Layout::scale_bytes};
  });
  return sizes;
}

void pack_planes(DType type, const std::byte* data, std::int64_t rows, std::int64_t cols, const PlaneBytes& out) {
  if (dtype_info(type).block_len == 1) {
    std::memcpy(out.low, data, row_bytes(type, cols) * static_cast<std::size_t>(rows));
    return;
  }
  with_block(type, [&]<class Block>() {
    const std::int64_t blocks = rows * (cols / kTraits<Block>.length);
    for (std::int64_t i = 0; i < blocks; ++i) {
      Block block;  // a file may align its tensors to one byte
      std::memcpy(&block, data + static_cast<std::size_t>(i) * sizeof(Block), sizeof block);
      pack_block(block, i, out);
    }
  });
}

void WeightLoader::prepare() {
  if (!stream_) stream_ = device_.make_stream();
  for (Staging& staging : staging_) {
    if (!staging.memory) staging.memory = device_.allocate_host(kStagingBytes);
    if (!staging.copied) staging.copied = device_.make_event();
  }
}

std::unique_ptr<Weight> WeightLoader::load(DType type, int experts, std::int64_t rows, std::int64_t cols,
                                           const std::byte* data, std::size_t stride) {
  const DTypeInfo& info = dtype_info(type);
  const PlaneSizes row = plane_row_bytes(type, cols);
  const std::size_t staged = row.low + row.high + row.sub + row.scale + 4 * kAlignment;
  if (experts < 1 || rows < 1 || cols < 1 || cols % info.block_len != 0 || cols > std::numeric_limits<int>::max() ||
      staged > kStagingBytes) {
    throw Error(ErrorKind::invalid_request, std::string(info.name) + " weight: expected rows that are multiples of " +
                                                std::to_string(info.block_len) + " long and at most " +
                                                std::to_string(kStagingBytes) + " bytes, got " + std::to_string(rows) +
                                                " rows of " + std::to_string(cols));
  }
  prepare();
  const auto rows_each = static_cast<std::size_t>(rows), n = rows_each * static_cast<std::size_t>(experts);
  const std::size_t high = align(n * row.low), sub = high + align(n * row.high), scale = sub + align(n * row.sub);
  Buffer memory = device_.allocate(scale + n * row.scale);
  auto* const base = memory.as<std::uint8_t>();
  const WeightPlanes planes{type, rows, static_cast<int>(cols), base, base + high, base + sub, base + scale};

  // Copies under way end before the memory does, and an error doesn't stay with the stream.
  const auto settle = [](Stream* stream) {
    try {
      stream->synchronize();
    } catch (const Error&) {  // told already
    }
  };
  const std::unique_ptr<Stream, decltype(settle)> guard(stream_.get(), settle);
  const std::size_t per_piece = (kStagingBytes - 4 * kAlignment) / (staged - 4 * kAlignment);
  for (std::size_t first = 0, count = 0, piece = 0; first < n; first += count, ++piece) {
    const std::size_t in_expert = first % rows_each;
    count = std::min(per_piece, rows_each - in_expert);
    Staging& staging = staging_[piece % 2];
    if (piece >= 2)
      staging.copied->wait();  // the piece before the last one; an event of an earlier load may tell its error
    PlaneBytes at{.low = staging.memory.as<std::uint8_t>()};
    at.high = at.low + align(count * row.low);
    at.sub = at.high + align(count * row.high);
    at.scale = at.sub + align(count * row.sub);
    const std::byte* source = data + first / rows_each * stride + in_expert * row_bytes(type, cols);
    pack_in_parallel(type, source, static_cast<std::int64_t>(count), cols, at);
    const auto copy = [&](std::size_t plane, const std::uint8_t* from, std::size_t bytes) {
      if (bytes != 0) stream_->copy_to_device(base + plane + first * bytes, from, count * bytes);
    };
    copy(0, at.low, row.low);
    copy(high, at.high, row.high);
    copy(sub, at.sub, row.sub);
    copy(scale, at.scale, row.scale);
    stream_->record(*staging.copied);
  }
  stream_->synchronize();
  return std::make_unique<GpuWeight>(planes, experts, std::move(memory));
}

}  // namespace KERNEL_NAMESPACE
