#pragma once
// How much of a device's memory keys and values take, and which context fits: for devices with memory of their own.
#include <cstdint>

namespace bankml {

struct KvDemand {
  std::uint64_t full_block_bytes = 0, window_block_bytes = 0;  // of 64 positions; 0: no layers of that part
  int slots = 1;
  bool shared_context = true;     // the slots share the cells of the full part
  std::int64_t window_cells = 0;  // of a slot's window part at most
};

struct KvBlocks {
  std::uint64_t full = 0, window = 0;
  std::uint64_t bytes(const KvDemand& demand) const noexcept {
    return full * demand.full_block_bytes + window * demand.window_block_bytes;
  }
};

// What slots of `context` tokens each (all together, if they share it) hold at most, and a copy of a block that is
// shared and written to, for each slot.
KvBlocks blocks_for_context(const KvDemand& demand, std::int64_t context) noexcept;

// The largest multiple of 256 tokens, up to `most`, whose blocks take at most `bytes`; 0: none.
std::int64_t context_that_fits(const KvDemand& demand, std::int64_t most, std::uint64_t bytes) noexcept;

// Blocks that may be taken beyond `needed`, so that a conversation can begin while the one before is still being
// copied: as many again, but at most half of what is left of `free_bytes`.
KvBlocks spare_blocks(const KvDemand& demand, const KvBlocks& needed, std::uint64_t free_bytes) noexcept;

}  // namespace bankml
