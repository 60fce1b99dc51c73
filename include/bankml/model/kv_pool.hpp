#pragma once
// KV memory in blocks: each holds 64 positions of all layers, K and V, in one contiguous piece. Blocks are counted references,
// so a saved state and a slot can share a prefix; a shared block is copied before it is written (copy on write).
#include <cstddef>
#include <cstdint>
#include <memory>
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

// The blocks of one sequence; cell c lies in blocks()[c / 64]. Copying shares the blocks.
class KvSequence {
 public:
  std::int64_t cells() const noexcept { return cells_; }
  const std::vector<KvBlock>& blocks() const noexcept { return blocks_; }

  // Forgets all cells from n on; blocks that become empty are given back.
  void truncate(std::int64_t n);
  // Makes room for cells [cells(), n), with private blocks for all that will be written: a shared block that is partly used is
  // copied first, on `stream`. Throws Error(out_of_memory) and is then unchanged.
  void extend(std::int64_t n, KvPool& pool, Stream& stream);

 private:
  std::vector<KvBlock> blocks_;
  std::int64_t cells_ = 0;
};

}  // namespace bankml
