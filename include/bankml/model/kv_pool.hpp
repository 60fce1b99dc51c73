#pragma once
// KV memory in blocks: each holds 64 positions of all layers, K and V, in one contiguous piece. Blocks are counted references,
// so a saved state and a slot can share a prefix; a shared block is copied before it is written (copy on write).
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "bankml/device/ops.hpp"
#include "bankml/model/config.hpp"

namespace bankml {

class KvPool;

// A counted reference to one block.
class KvBlock {
 public:
  KvBlock() = default;
  KvBlock(const KvBlock& other) noexcept;
  KvBlock(KvBlock&& other) noexcept : pool_(other.pool_), index_(other.index_) { other.pool_ = nullptr; }
  KvBlock& operator=(KvBlock other) noexcept;
  ~KvBlock();
  std::byte* data() const noexcept;
  bool shared() const noexcept;
  explicit operator bool() const noexcept { return pool_ != nullptr; }

 private:
  friend class KvPool;
  KvBlock(KvPool* pool, std::uint32_t index) noexcept : pool_(pool), index_(index) {}
  KvPool* pool_ = nullptr;
  std::uint32_t index_ = 0;
};

// Used by the engine thread only. Must outlive its blocks.
class KvPool {
 public:
  // `max_blocks` may be taken at once, 0: as many as memory holds. Memory is taken in slabs when first needed and kept.
  KvPool(Device& device, const ModelConfig& config, DType type_k, DType type_v, std::size_t max_blocks);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  KvBlock allocate();  // contents undefined; throws Error(out_of_memory)

  const KvLayout& layout(int layer) const noexcept { return layouts_[static_cast<std::size_t>(layer)]; }
  std::size_t block_bytes() const noexcept { return block_bytes_; }
  std::size_t blocks_in_use() const noexcept;
  std::size_t bytes_reserved() const noexcept;  // slabs taken so far
  DType type_k() const noexcept { return type_k_; }
  DType type_v() const noexcept { return type_v_; }

  // Bytes that llama-server b11192 counts for the state of n tokens (docs/prompt-cache.md, B(n)).
  std::size_t accounted_bytes(std::int64_t tokens) const noexcept;

 private:
  friend class KvBlock;
  struct Slabs;
  Device& device_;
  DType type_k_, type_v_;
  std::vector<KvLayout> layouts_;
  std::size_t block_bytes_ = 0;
  std::size_t accounted_per_token_ = 0;
  int layers_ = 0;
  std::size_t max_blocks_ = 0;
  std::unique_ptr<Slabs> slabs_;
};

// The KV of one sequence: positions 0 to length() - 1, each in a cell; cell c lies in blocks()[c / 64]. Cell c holds position c until
// positions are dropped from the middle: then the cells that became free are filled first, the lowest ones first, as the peer does
// (docs/prompt-cache.md, 3.3). Copying shares the blocks.
class KvSequence {
 public:
  struct Run {
    std::int64_t from, count, to;  // positions [from, from + count) become [to, to + count)
  };

  std::int64_t length() const noexcept { return length_; }
  std::int64_t cells() const noexcept { return cells_; }  // highest used cell + 1
  std::int64_t cell_of(std::int64_t position) const noexcept {
    return in_order() ? position : cell_of_[static_cast<std::size_t>(position)];
  }
  bool in_order() const noexcept { return position_of_.empty(); }  // cell c holds position c
  // Position held by each cell, -1: free. Empty if in_order().
  const std::vector<std::int32_t>& position_of() const noexcept { return position_of_; }
  const std::vector<KvBlock>& blocks() const noexcept { return blocks_; }

  // Forgets positions from n on; blocks that become empty at the end are given back.
  void truncate(std::int64_t n);
  // Makes room for positions [length(), n), in blocks of this sequence alone: a shared block that will be written is copied first,
  // on `stream`. Throws Error(out_of_memory) and is then unchanged.
  void extend(std::int64_t n, KvPool& pool, Stream& stream);
  // Keeps only these runs, in ascending order, which together become positions 0 to n - 1. Contents stay in their cells. The cells of
  // runs that move are made private to this sequence, since their keys have to be rotated.
  void keep(std::span<const Run> runs, KvPool& pool, Stream& stream);

 private:
  void make_private(std::span<const std::size_t> blocks, KvPool& pool, Stream& stream);

  std::vector<KvBlock> blocks_;
  std::int64_t cells_ = 0, length_ = 0;
  std::vector<std::int32_t> position_of_, cell_of_;  // empty while in order
  std::int64_t search_from_ = 0;                     // no cell below is free; unused while in order
};

}  // namespace bankml
