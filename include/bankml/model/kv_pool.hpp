#pragma once
// KV memory in blocks: each holds 64 positions of all layers of one part, K and V, in one contiguous piece. Layers that
// see every position are one part, those that see only a window the other one: these need a few blocks only, however
// long the sequence. Blocks are counted references, so a saved state and a slot can share a prefix; a shared block is
// copied before it is written (copy on write).
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "bankml/device/ops.hpp"
#include "bankml/model/config.hpp"

namespace bankml {

struct KvArena;
struct KvDeviceArena;
class KvPool;

// Which layers a block belongs to.
enum class KvPart : std::uint8_t { full, window };
inline constexpr std::array kKvParts = {KvPart::full, KvPart::window};

// A counted reference to one block: of device memory, or of host memory, to which a KvTransport has copied it.
class KvBlock {
 public:
  KvBlock() = default;
  KvBlock(const KvBlock& other) noexcept;
  KvBlock(KvBlock&& other) noexcept : arena_(other.arena_), index_(other.index_) { other.arena_ = nullptr; }
  KvBlock& operator=(KvBlock other) noexcept;
  ~KvBlock();
  std::byte* data() const noexcept;  // nullptr if there is none
  bool shared() const noexcept;
  bool on_host() const noexcept;
  explicit operator bool() const noexcept { return arena_ != nullptr; }

 private:
  friend class KvPool;
  friend class KvTransport;
  KvBlock(KvArena* arena, std::uint32_t index) noexcept : arena_(arena), index_(index) {}
  KvArena* arena_ = nullptr;
  std::uint32_t index_ = 0;
};

// Used by the engine thread only. Must outlive its blocks.
class KvPool {
 public:
  // `max_blocks` of each part may be taken at once, 0: as many as memory holds. Memory is taken in slabs when first
  // needed and kept. `window_cells`: cells of a sequence in layers with a window, the peer's size of that cache
  // (docs/prompt-cache.md, 3.4); those whose position has left the window are used again. 0: such layers keep all
  // positions.
  KvPool(Device& device, const ModelConfig& config, DType type_k, DType type_v, std::size_t max_blocks,
         std::int64_t window_cells = 0);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  KvBlock allocate(KvPart part);  // contents undefined; throws Error(out_of_memory)
  // Takes memory for so many blocks now, and never for more than `max_blocks` (0: no limit). Throws
  // Error(out_of_memory).
  void reserve(KvPart part, std::size_t blocks, std::size_t max_blocks);
  // Called by allocate() when there is no block and no memory for one: whether it shall look again. Empty: nobody is
  // asked.
  void on_shortage(const std::function<bool()>& handler);

  const KvLayout& layout(int layer) const noexcept { return layouts_[static_cast<std::size_t>(layer)]; }
  int layers() const noexcept { return static_cast<int>(layouts_.size()); }
  KvPart part_of(int layer) const noexcept { return parts_[static_cast<std::size_t>(layer)]; }
  int window() const noexcept { return window_; }  // positions that the window layers see, 0: there are none
  std::int64_t window_cells() const noexcept { return window_cells_; }
  std::size_t block_bytes(KvPart part) const noexcept;
  std::size_t blocks_in_use() const noexcept;   // of both parts
  std::size_t bytes_reserved() const noexcept;  // slabs taken so far
  DType type_k() const noexcept { return type_k_; }
  DType type_v() const noexcept { return type_v_; }

  // Bytes that llama-server b11192 counts for a state of n tokens, B(n) of docs/prompt-cache.md, of which window layers
  // hold `window_tokens`; and for a checkpoint, which is the part of the window layers alone. `streams`: independent KV
  // streams of the peer's cache (one a slot unless unified).
  std::size_t accounted_bytes(std::int64_t tokens, std::int64_t window_tokens = 0, int streams = 1) const noexcept;
  std::size_t accounted_checkpoint_bytes(std::int64_t window_tokens, int streams = 1) const noexcept;

  // Copies the rows of `n` successive cells of one block to another one of the same part, which may be the same.
  void copy_cells(Stream& stream, KvPart part, const KvBlock& to, std::int64_t to_cell, const KvBlock& from,
                  std::int64_t from_cell, std::int64_t n) const;

 private:
  std::size_t accounted_part(KvPart part, std::int64_t cells, int streams) const noexcept;

  DType type_k_, type_v_;
  std::vector<KvLayout> layouts_;  // per layer
  std::vector<KvPart> parts_;      // per layer
  int window_ = 0;
  std::int64_t window_cells_ = 0;
  std::array<std::unique_ptr<KvDeviceArena>, kKvParts.size()> arenas_;
};

// Where one part of a sequence keeps its positions: cell c lies in blocks()[c / 64]. Cells are taken as the peer takes
// them, because attention adds up in their order (docs/prompt-cache.md, 3.3 and 3.4): the first usable one from the
// cell after the last one taken, around the end. Usable is an empty cell, and in a window part one whose position no
// later row sees; when it is overwritten, all positions up to it are forgotten.
class KvCells {
 public:
  std::int64_t cells() const noexcept { return cells_; }           // highest used cell + 1
  bool in_order() const noexcept { return position_of_.empty(); }  // cell c holds position c
  // Position held by each cell, -1: none. Empty if in_order().
  const std::vector<std::int32_t>& position_of() const noexcept { return position_of_; }
  std::int32_t position(std::int64_t cell) const noexcept {
    return in_order() ? static_cast<std::int32_t>(cell) : position_of_[static_cast<std::size_t>(cell)];
  }
  std::int64_t cell_of(std::int64_t position) const noexcept;     // quick for the positions of the last extension
  std::int64_t first_position() const noexcept;                   // the smallest one held, -1: none
  std::int64_t count_from(std::int64_t position) const noexcept;  // positions held from this one on
  const std::vector<KvBlock>& blocks() const noexcept { return blocks_; }  // of used cells; others may be missing
  // Appends where its blocks are, for a KvTransport to exchange them. Valid until the next change.
  void collect_blocks(std::vector<KvBlock*>& out) {
    for (KvBlock& block : blocks_) {
      if (block) out.push_back(&block);
    }
  }

 private:
  friend class KvSequence;

  // What an extension takes, before anything is changed.
  struct Extension {
    std::vector<std::int32_t> cells;  // of the new positions; empty: the ones after the last
    std::vector<std::pair<std::size_t, KvBlock>> copies;
    std::vector<KvBlock> fresh;
  };
  Extension plan(std::int64_t from, std::int64_t to, KvPool& pool, KvPart part, Stream& stream) const;
  std::vector<std::int32_t> find_cells(std::int64_t from, std::int64_t count, std::int64_t capacity, int window) const;
  void add_copy(Extension& plan, std::size_t block, KvPool& pool, KvPart part, Stream& stream) const;
  void apply(Extension&& plan, std::int64_t from, std::int64_t to);
  void make_explicit();
  void shrink();
  void truncate(std::int64_t n);
  void keep_last(std::int64_t from);
  void place(const KvCells& saved, KvPool& pool, KvPart part, Stream& stream);

  std::vector<KvBlock> blocks_;
  std::int64_t cells_ = 0, used_ = 0;
  std::int64_t head_ = 0;                  // where the next search begins
  std::vector<std::int32_t> position_of_;  // empty while in order
  std::vector<std::int32_t>
      placed_;  // cells of the last extension, whose first position is placed_from_; empty: in order
  std::int64_t placed_from_ = 0;
};

// The KV of one sequence: positions 0 to length() - 1, of which window layers hold at least those that the next row
// sees. Copying shares the blocks.
class KvSequence {
 public:
  struct Run {
    std::int64_t from, count, to;  // positions [from, from + count) become [to, to + count)
  };

  std::int64_t length() const noexcept { return length_; }
  const KvCells& part(KvPart part) const noexcept { return parts_[static_cast<std::size_t>(part)]; }
  void collect_blocks(std::vector<KvBlock*>& out) {
    for (KvCells& part : parts_) part.collect_blocks(out);
  }

  // Forgets positions from n on; blocks that become empty at the end are given back.
  void truncate(std::int64_t n);
  // Makes room for positions [length(), n), in blocks of this sequence alone: a shared block that will be written is
  // copied first, on `stream`. Throws Error(out_of_memory) and is then unchanged.
  void extend(std::int64_t n, KvPool& pool, Stream& stream);
  // Keeps only these runs, in ascending order, which together become positions 0 to n - 1. Contents stay in their
  // cells. The blocks of runs that move are made private to this sequence, since their keys have to be rotated. Window
  // parts must hold all positions.
  void keep(std::span<const Run> runs, KvPool& pool, Stream& stream);

  // What is worth keeping of it: the blocks are shared; window layers keep the positions that a next token would see.
  KvSequence saved(const KvPool& pool) const;
  // The same of the window layers alone: a checkpoint.
  KvCells saved_window(const KvPool& pool) const;
  // Takes over a saved state, whose blocks must be on the device. Like the peer, puts it into successive cells, in the
  // order of the old ones: blocks are shared where these are the old cells, otherwise rows are copied on `stream`.
  // Throws Error(out_of_memory) and is then unchanged.
  void restore(const KvSequence& saved, KvPool& pool, Stream& stream);
  // Takes over a checkpoint; full layers are left as they are. Follow it by truncate().
  void restore_window(const KvCells& saved, KvPool& pool, Stream& stream);
  // A window part whose cells hold these positions, in this order from cell 0 on; for states read from a file. `full`:
  // cells of the full part, in order.
  void create(std::int64_t full, std::span<const std::int32_t> window, KvPool& pool);

 private:
  KvCells& cells(KvPart part) noexcept { return parts_[static_cast<std::size_t>(part)]; }

  std::array<KvCells, kKvParts.size()> parts_;
  std::int64_t length_ = 0;
};

}  // namespace bankml
