#pragma once
// Carries saved states between the device and pinned host memory, beside the computation: states go out on one stream,
// come back on another, and wait for one another and for the computation on the device only.
//
// A block that is being copied is held until its copy is done, so nobody writes to it meanwhile: a slot that goes on
// takes other blocks. Each copied block carries the copy that wrote it; it is not read before that has ended, and never
// if it failed.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "bankml/device/pinned_pool.hpp"
#include "bankml/model/kv_pool.hpp"

namespace bankml {

struct KvTransportOptions {
  std::uint64_t limit_bytes = 0;  // of host memory taken, copies under way included; 0: none
  std::size_t slab_bytes = PinnedPoolOptions{}.slab_bytes;
  bool ahead_of_need = true;  // slabs are made on a thread of their own where that is early enough
  std::function<std::optional<std::uint64_t>()> available = {};  // as in PinnedPoolOptions
};

// Seconds reach from where a copy was queued to where it was seen done, or so long the thread waited.
struct KvTransportStats {
  std::uint64_t saved_bytes = 0, loaded_bytes = 0;
  double save_seconds = 0, load_seconds = 0;
  std::uint64_t failed_saves = 0, failed_loads = 0;
  std::uint64_t waits = 0;  // of the thread for copies: device or host memory was short, or pageable
  double wait_seconds = 0;
  PinnedPoolUsage host;
};

// Used by one thread. `device` and `pool` outlive it, and it outlives the copies that it makes.
class KvTransport {
 public:
  using Blocks = std::span<KvBlock* const>;

  KvTransport(Device& device, KvPool& pool, KvTransportOptions options);
  KvTransport(const KvTransport&) = delete;
  KvTransport& operator=(const KvTransport&) = delete;
  ~KvTransport();  // waits for copies

  // Whether save() would find host memory for those of these blocks that lie on the device: free, or held by copies
  // under way alone.
  bool fits(Blocks blocks) const;
  // Puts copies in host memory in the place of blocks of device memory, of each one once: the copies are made when what
  // `compute` has been given so far is done. Blocks in host memory stay. Throws Error(out_of_memory), Error(device);
  // nothing is changed then.
  void save(Blocks blocks, Stream& compute);
  // Puts copies in device memory in the place of blocks of host memory, and lets later work of `compute` wait for them.
  // Throws Error(out_of_memory), or Error(device) also where a save of one of the blocks has failed; nothing is changed
  // then.
  void load(Blocks blocks, Stream& compute);
  // Whether no save of these blocks is known to have failed.
  bool intact(Blocks blocks) const;

  // Lets go of what ended copies held.
  void poll();
  bool busy() const noexcept;  // whether a copy was under way at the last poll()
  // Waits for all copies, and takes the errors of failed ones from their streams.
  void settle();
  KvTransportStats stats() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bankml
