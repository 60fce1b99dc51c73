#pragma once
// Where the blocks of one part lie: in device memory, or as saved copies in host memory.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "bankml/device/device.hpp"
#include "bankml/device/pinned_pool.hpp"
#include "bankml/model/kv_pool.hpp"

namespace bankml {

struct KvArena {
  explicit KvArena(KvPart p) : part(p) {}
  KvArena(const KvArena&) = delete;
  KvArena& operator=(const KvArena&) = delete;
  virtual ~KvArena() = default;

  virtual bool on_host() const noexcept = 0;
  std::uint32_t take();  // a block with one reference; throws Error(out_of_memory)
  virtual void give_back(std::uint32_t index) noexcept { free.push_back(index); }

  KvPart part;
  std::size_t block_bytes = 0;
  std::vector<std::byte*> address;        // of each block
  std::vector<std::uint32_t> references;  // of each block; 0: free
  std::vector<std::uint32_t> free;
  // Asked when no block is free and none can be added: whether some block may be free now.
  std::function<bool()> on_shortage;

 protected:
  virtual void grow() = 0;  // one free block or more; throws Error(out_of_memory)
  // Blocks from `first` on, which may be known already, in one piece of memory.
  void add_blocks(std::size_t first, std::size_t count, std::byte* memory);
};

struct KvDeviceArena final : KvArena {
  KvDeviceArena(Device& d, KvPart p, std::size_t most) : KvArena(p), device(d), max_blocks(most) {}

  bool on_host() const noexcept override { return false; }
  void reserve(std::size_t blocks);

  Device& device;
  std::size_t max_blocks;                 // 0: as many as memory holds
  std::size_t layers = 0, row_bytes = 0;  // rows of one token, all layers
  std::vector<Buffer> buffers;
  std::size_t bytes = 0;

 private:
  void grow() override;
  void add(std::size_t more);
};

// Blocks share pieces of a pool that both parts use; a piece without blocks in use goes back to it.
struct KvHostArena final : KvArena {
  KvHostArena(PinnedPool& pinned, KvPart p, std::size_t bytes);

  bool on_host() const noexcept override { return true; }
  void give_back(std::uint32_t index) noexcept override;
  bool pinned(std::uint32_t index) const noexcept { return pieces[index / per_piece].pinned; }

  // A save that writes a block, and whether it failed.
  struct Write {
    std::uint64_t save = 0;
    bool failed = false;
  };
  std::vector<Write> writes;  // of each block
  std::size_t per_piece;

 private:
  struct Piece {
    Buffer memory;  // none: its blocks don't exist
    bool pinned = false;
  };
  void grow() override;

  PinnedPool& pool;
  std::vector<Piece> pieces;
};

}  // namespace bankml
