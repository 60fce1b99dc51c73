#include "bankml/device/pinned_pool.hpp"

#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <limits>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "device/cpu/memory.hpp"

namespace bankml {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAheadPart = 4;  // the next slab is made when less than this part of a slab is free
constexpr int kLowPriority = 10;       // nice value of the thread that makes slabs
constexpr double kMiB = 1024.0 * 1024.0;

// Now and not page by page during the first copy.
void touch(const Buffer& memory) {
  for (std::size_t i = 0; i < memory.bytes(); i += kPage)
    *static_cast<volatile std::byte*>(memory.data() + i) = std::byte{0};
}

}  // namespace

struct PinnedPool::State {
  struct Slab {
    Buffer memory;
    bool pinned = false;
  };

  Device& device;
  PinnedPoolOptions options;
  mutable std::mutex mutex;  // of everything below
  std::condition_variable_any changed;
  std::vector<Slab> slabs;
  std::vector<std::byte*> free;
  std::uint64_t bytes = 0;         // of all slabs, one that is being made included
  std::size_t used = 0;            // pieces
  std::size_t growing_pieces = 0;  // of the slab that is being made, 0: none is
  bool pinning_failed = false;
  bool more_wanted = false;
  std::jthread grower;

  State(Device& d, PinnedPoolOptions o) : device(d), options(std::move(o)), more_wanted(options.ahead_of_need) {}

  // Pieces that slabs may be added for: within the limit, and what the machine can spare.
  std::uint64_t addable_pieces() const {
    std::uint64_t room =
        options.limit_bytes > 0 ? options.limit_bytes - bytes : std::numeric_limits<std::uint64_t>::max();
    if (options.available && room >= options.piece_bytes) room = std::min(room, options.available().value_or(room));
    return room / options.piece_bytes;
  }

  std::size_t slab_pieces() const { return std::max<std::size_t>(1, options.slab_bytes / options.piece_bytes); }

  static Slab allocate_pageable(std::size_t slab_bytes) {
    Slab slab{allocate_memory(slab_bytes)};
    touch(slab.memory);
    return slab;
  }

  // Pinned if that is wanted and possible.
  Slab allocate(std::size_t slab_bytes, bool pin) const {
    if (!pin) return allocate_pageable(slab_bytes);
    try {
      return {device.allocate_host(slab_bytes), true};
    } catch (const std::exception& error) {
      Slab slab = allocate_pageable(slab_bytes);
      log_warning("{:.0f} MiB of the prompt cache can't be pinned, copies will be slower: {}",
                  static_cast<double>(slab_bytes) / kMiB, error.what());
      return slab;
    }
  }

  // How many pieces the next slab has; 0: there is none. Once this has returned, adding the slab can't fail, nor can
  // giving a piece back.
  std::size_t prepare_slab() {
    const auto pieces = static_cast<std::size_t>(std::min<std::uint64_t>(slab_pieces(), addable_pieces()));
    free.reserve(static_cast<std::size_t>(bytes / options.piece_bytes) + pieces);
    slabs.reserve(slabs.size() + 1);
    return pieces;
  }

  // Whether there is one slab more. `lock` is open while memory is taken and pinned. Never throws: it runs on a thread
  // of its own, too.
  bool grow(std::unique_lock<std::mutex>& lock) noexcept {
    const auto report = [](const std::exception& error) {
      log_warning("the prompt cache's memory doesn't grow: {}", error.what());
    };
    std::size_t pieces = 0;
    try {
      pieces = prepare_slab();
    } catch (const std::exception& error) {
      report(error);
    }
    if (pieces == 0) return false;
    const std::size_t slab_bytes = pieces * options.piece_bytes;
    growing_pieces = pieces;
    bytes += slab_bytes;
    const bool pin = !pinning_failed;
    lock.unlock();
    Slab slab;
    try {
      slab = allocate(slab_bytes, pin);
    } catch (const std::exception& error) {
      report(error);
    }
    lock.lock();
    growing_pieces = 0;
    const bool added = static_cast<bool>(slab.memory);
    if (added) {
      pinning_failed = !slab.pinned;
      for (std::size_t i = pieces; i-- > 0;) free.push_back(slab.memory.data() + i * options.piece_bytes);
      slabs.push_back(std::move(slab));
    } else {
      bytes -= slab_bytes;
    }
    changed.notify_all();
    return added;
  }

  void grow_when_wanted(const std::stop_token& stop) {
    setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), kLowPriority);
    std::unique_lock lock(mutex);
    while (changed.wait(lock, stop, [&] { return more_wanted && growing_pieces == 0; })) {
      more_wanted = false;
      grow(lock);
    }
  }

  void want_more_if_few() {
    if (!options.ahead_of_need || growing_pieces != 0 ||
        free.size() >= std::max<std::size_t>(1, slab_pieces() / kAheadPart))
      return;
    more_wanted = true;
    changed.notify_all();
  }

  const Slab* slab_of(const std::byte* p) const {
    for (const Slab& slab : slabs) {
      if (p >= slab.memory.data() && p < slab.memory.data() + slab.memory.bytes()) return &slab;
    }
    return nullptr;
  }

  static void give_back(void* data, std::size_t, void* context) {
    auto& self = *static_cast<State*>(context);
    const std::lock_guard lock(self.mutex);
    self.free.push_back(static_cast<std::byte*>(data));
    --self.used;
  }
};

PinnedPool::PinnedPool(Device& device, PinnedPoolOptions options)
    : state_(std::make_unique<State>(device, std::move(options))) {
  if (state_->options.piece_bytes == 0) throw Error(ErrorKind::internal, "a pool of pieces of 0 bytes");
  if (state_->options.ahead_of_need) {
    state_->grower =
        std::jthread([state = state_.get()](const std::stop_token& stop) { state->grow_when_wanted(stop); });
  }
}

PinnedPool::~PinnedPool() {
  if (!state_->grower.joinable()) return;
  state_->grower.request_stop();
  state_->grower.join();
}

Buffer PinnedPool::take() {
  State& s = *state_;
  std::unique_lock lock(s.mutex);
  while (s.free.empty()) {
    if (s.growing_pieces != 0) {
      s.changed.wait(lock, [&] { return s.growing_pieces == 0; });
    } else if (!s.grow(lock)) {
      return {};
    }
  }
  std::byte* const data = s.free.back();
  s.free.pop_back();
  ++s.used;
  s.want_more_if_few();
  return Buffer(data, s.options.piece_bytes, State::give_back, &s);
}

std::size_t PinnedPool::room() const {
  const std::lock_guard lock(state_->mutex);
  return state_->free.size() + state_->growing_pieces + static_cast<std::size_t>(state_->addable_pieces());
}

bool PinnedPool::pinned(const Buffer& piece) const {
  const std::lock_guard lock(state_->mutex);
  const State::Slab* const slab = state_->slab_of(piece.data());
  return slab && slab->pinned;
}

std::size_t PinnedPool::piece_bytes() const noexcept {
  return state_->options.piece_bytes;
}

PinnedPoolUsage PinnedPool::usage() const {
  const std::lock_guard lock(state_->mutex);
  PinnedPoolUsage usage;
  for (const State::Slab& slab : state_->slabs) {
    (slab.pinned ? usage.pinned_bytes : usage.pageable_bytes) += slab.memory.bytes();
  }
  usage.used_bytes = state_->used * state_->options.piece_bytes;
  usage.slabs = state_->slabs.size();
  return usage;
}

}  // namespace bankml
