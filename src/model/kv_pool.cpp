#include "bankml/model/kv_pool.hpp"

#include <algorithm>

#include "model/kv_arena.hpp"

namespace bankml {
namespace {

constexpr std::size_t kAlignment = 64;

std::size_t align_up(std::size_t bytes) noexcept {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::size_t index_of(KvPart part) noexcept {
  return static_cast<std::size_t>(part);
}

}  // namespace

KvBlock::KvBlock(const KvBlock& other) noexcept : arena_(other.arena_), index_(other.index_) {
  if (arena_) ++arena_->references[index_];
}

KvBlock& KvBlock::operator=(KvBlock other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(index_, other.index_);
  return *this;
}

KvBlock::~KvBlock() {
  if (arena_ && --arena_->references[index_] == 0) arena_->give_back(index_);
}

std::byte* KvBlock::data() const noexcept {
  return arena_ ? arena_->address[index_] : nullptr;
}

bool KvBlock::shared() const noexcept {
  return arena_->references[index_] > 1;
}

bool KvBlock::on_host() const noexcept {
  return arena_ && arena_->on_host();
}

KvPool::KvPool(Device& device, const ModelConfig& config, DType type_k, DType type_v, std::size_t max_blocks,
               std::int64_t window_cells)
    : type_k_(type_k), type_v_(type_v), window_cells_(window_cells) {
  for (const KvPart part : kKvParts)
    arenas_[index_of(part)] = std::make_unique<KvDeviceArena>(device, part, max_blocks);
  for (const LayerConfig& layer : config.layer) {
    window_ = std::max(window_, layer.window);
    parts_.push_back(layer.window > 0 ? KvPart::window : KvPart::full);
    KvDeviceArena& arena = *arenas_[index_of(parts_.back())];
    KvLayout layout;
    layout.type_k = type_k;
    layout.type_v = type_v;
    layout.kv_heads = layer.kv_heads;
    layout.head_dim_k = config.head_dim_k;
    layout.head_dim_v = config.head_dim_v;
    const std::size_t row_k = row_bytes(type_k, std::int64_t{layer.kv_heads} * config.head_dim_k);
    const std::size_t row_v = row_bytes(type_v, std::int64_t{layer.kv_heads} * config.head_dim_v);
    layout.k_offset = static_cast<std::int64_t>(arena.block_bytes);
    arena.block_bytes += align_up(row_k * kBlockCells);
    layout.v_offset = static_cast<std::int64_t>(arena.block_bytes);
    arena.block_bytes += align_up(row_v * kBlockCells);
    arena.row_bytes += row_k + row_v;
    ++arena.layers;
    layouts_.push_back(layout);
  }
  // A part without layers has no rows, but its cells are counted like the other's.
  for (auto& arena : arenas_) arena->block_bytes = std::max(arena->block_bytes, kAlignment);
}

KvPool::~KvPool() = default;

KvBlock KvPool::allocate(KvPart part) {
  KvArena& arena = *arenas_[index_of(part)];
  return KvBlock(&arena, arena.take());
}

void KvPool::reserve(KvPart part, std::size_t blocks, std::size_t max_blocks) {
  KvDeviceArena& arena = *arenas_[index_of(part)];
  arena.reserve(blocks);
  arena.max_blocks = max_blocks;
}

void KvPool::on_shortage(const std::function<bool()>& handler) {
  for (auto& arena : arenas_) arena->on_shortage = handler;
}

std::size_t KvPool::block_bytes(KvPart part) const noexcept {
  return arenas_[index_of(part)]->block_bytes;
}

std::size_t KvPool::blocks_in_use() const noexcept {
  std::size_t blocks = 0;
  for (const auto& arena : arenas_) blocks += arena->address.size() - arena->free.size();
  return blocks;
}

std::size_t KvPool::bytes_reserved() const noexcept {
  std::size_t bytes = 0;
  for (const auto& arena : arenas_) bytes += arena->bytes;
  return bytes;
}

namespace {

constexpr std::size_t kStateHead = 8;  // of every state

}  // namespace

std::size_t KvPool::accounted_part(KvPart part, std::int64_t cells, int streams) const noexcept {
  constexpr std::size_t kHead = 16, kPerCell = 12, kPerLayer = 24, kPerFurtherStream = 4;
  const KvDeviceArena& arena = *arenas_[index_of(part)];
  return kHead + kPerFurtherStream * static_cast<std::size_t>(streams - 1) + kPerLayer * arena.layers +
         static_cast<std::size_t>(cells) * (kPerCell + arena.row_bytes);
}

std::size_t KvPool::accounted_bytes(std::int64_t tokens, std::int64_t window_tokens, int streams) const noexcept {
  const std::size_t full = kStateHead + accounted_part(KvPart::full, tokens, streams);
  return window_ == 0 ? full : full + accounted_part(KvPart::window, window_tokens, streams);
}

std::size_t KvPool::accounted_checkpoint_bytes(std::int64_t window_tokens, int streams) const noexcept {
  return kStateHead + accounted_part(KvPart::window, window_tokens, streams);
}

void KvPool::copy_cells(Stream& stream, KvPart part, const KvBlock& to, std::int64_t to_cell, const KvBlock& from,
                        std::int64_t from_cell, std::int64_t n) const {
  if (n == kBlockCells) return stream.copy_on_device(to.data(), from.data(), block_bytes(part));
  const auto copy_rows = [&](std::int64_t offset, int heads, std::size_t row) {
    for (int head = 0; head < heads; ++head) {
      const auto at = [&](const KvBlock& block, std::int64_t cell) {
        return block.data() + offset + (head * kBlockCells + cell) * static_cast<std::int64_t>(row);
      };
      stream.copy_on_device(at(to, to_cell), at(from, from_cell), static_cast<std::size_t>(n) * row);
    }
  };
  for (std::size_t i = 0; i < layouts_.size(); ++i) {
    if (parts_[i] != part) continue;
    const KvLayout& kv = layouts_[i];
    copy_rows(kv.k_offset, kv.kv_heads, row_bytes(kv.type_k, kv.head_dim_k));
    copy_rows(kv.v_offset, kv.kv_heads, row_bytes(kv.type_v, kv.head_dim_v));
  }
}

}  // namespace bankml
