#pragma once
// Host memory for saved states, in pieces of one size: pinned in slabs, which grow with need up to a limit and stay for
// the life of the pool.
//
// Pinning takes long (1 to 3 s for 8 GiB) and holds locks of the driver meanwhile, so it happens slab by slab, the next
// one ahead of need on a thread of low priority, and nothing is unpinned while the daemon serves.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "bankml/device/device.hpp"

namespace bankml {

struct PinnedPoolOptions {
  std::size_t piece_bytes = 0;                      // of each piece, above 0
  std::uint64_t limit_bytes = 0;                    // of all slabs together, pieces in use and free ones alike; 0: none
  std::size_t slab_bytes = std::size_t{256} << 20;  // a slab holds whole pieces: at least one, at most so much
  bool ahead_of_need = true;  // whether a slab is made at the start and when the last free pieces are taken
  // Bytes that the machine can spare now without others being pushed out, unset where that isn't known. No slab is made
  // beyond them. Empty: nobody is asked. Called on any thread.
  std::function<std::optional<std::uint64_t>()> available = {};
};

struct PinnedPoolUsage {
  std::size_t pinned_bytes = 0;    // of pinned slabs
  std::size_t pageable_bytes = 0;  // of slabs that could not be pinned
  std::size_t used_bytes = 0;      // of pieces handed out
  std::size_t slabs = 0;
};

class PinnedPool {
 public:
  // Slabs come from Device::allocate_host(). `device` outlives the pool.
  PinnedPool(Device& device, PinnedPoolOptions options);
  PinnedPool(const PinnedPool&) = delete;
  PinnedPool& operator=(const PinnedPool&) = delete;
  ~PinnedPool();

  // A piece, aligned to 64 bytes if its size is a multiple of that, contents undefined. Empty when the limit is reached
  // or the machine has no more memory: the caller gives a piece back and asks again. Pieces end before the pool. Any
  // thread.
  Buffer take();
  // How many pieces take() would give now.
  std::size_t room() const;
  // Whether this piece's memory is pinned. After the first slab that can't be, with one log line, all others are
  // pageable: copies of theirs must be staged.
  bool pinned(const Buffer& piece) const;
  std::size_t piece_bytes() const noexcept;
  PinnedPoolUsage usage() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bankml
