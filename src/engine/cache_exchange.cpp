// States on their way between slots and the prompt cache (docs/prompt-cache.md, sections 2 and 7).
#include <algorithm>
#include <utility>

#include "bankml/base/log.hpp"
#include "engine/engine_impl.hpp"

namespace bankml {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

void log_cache_event(const PromptCacheEvent& event) {
  using Kind = PromptCacheEvent::Kind;
  const double mib = static_cast<double>(event.bytes) / kMiB, limit = static_cast<double>(event.limit_bytes) / kMiB;
  switch (event.kind) {
    case Kind::saved:
      return log_trace("prompt cache: saved {} tokens, {:.1f} MiB", event.tokens, mib);
    case Kind::already_cached:
      return log_trace("prompt cache: the slot's {} tokens are cached already", event.tokens);
    case Kind::obsolete:
      return log_trace("prompt cache: dropped {} tokens that the slot extends", event.tokens);
    case Kind::oversized:
      return log_warning("prompt cache: {} tokens, {:.1f} MiB, are more than the limit of {:.1f} MiB and aren't kept",
                         event.tokens, mib, limit);
    case Kind::evicted_bytes:
      return log_warning("prompt cache: evicted {} tokens, {:.1f} MiB, to stay within {:.1f} MiB", event.tokens, mib,
                         limit);
    case Kind::evicted_tokens:
      return log_warning("prompt cache: evicted {} tokens, {:.1f} MiB, to stay within the token limit", event.tokens,
                         mib);
    case Kind::evicted_memory:
      return log_warning("prompt cache: evicted {} tokens, {:.1f} MiB, to make room in host memory", event.tokens, mib);
    case Kind::no_memory:
      return log_warning("prompt cache: no host memory for {} tokens, {:.1f} MiB, which aren't kept", event.tokens,
                         mib);
    case Kind::broken:
      return log_warning("prompt cache: dropped {} tokens that were not stored whole", event.tokens);
    case Kind::allocation_failed:
      return log_warning("prompt cache: no memory for {} tokens, {:.1f} MiB; the limit is {:.1f} MiB for now",
                         event.tokens, mib, limit);
    case Kind::candidate:
      return log_trace("prompt cache: candidate of {} tokens, keep {:.3f}, similarity {:.3f}", event.tokens, event.keep,
                       event.similarity);
    case Kind::hit:
      return log_trace("prompt cache: took {} tokens, keep {:.3f}, similarity {:.3f}", event.tokens, event.keep,
                       event.similarity);
    case Kind::miss:
      return log_trace("prompt cache: nothing better than the slot's {} tokens", event.tokens);
  }
}

}  // namespace

void Engine::Impl::note_cache_event(const PromptCacheEvent& event) {
  using Kind = PromptCacheEvent::Kind;
  log_cache_event(event);
  try {
    if (!event.lost.empty()) lost.add(event.lost);
  } catch (const std::bad_alloc&) {  // it was there to explain, no more
  }
  if (event.kind == Kind::saved) metrics.saved_bytes += event.bytes;
  if (event.kind == Kind::hit) metrics.loaded_bytes += event.bytes;
  cache_changed = cache_changed || (event.kind != Kind::candidate && event.kind != Kind::miss);
}

// The slot's state goes to the prompt cache, and the best match comes back.
void Engine::Impl::exchange_state(Slot& slot, std::span<const TokenId> prompt) {
  const auto start = Clock::now();
  log_trace("slot {}: updating prompt cache", slot.id);
  drop_broken_states();
  slot.from_cache = false;
  save_to_cache(slot);
  slot.hits = 0;  // another conversation comes
  const auto saved = Clock::now();
  try {
    const auto restore = [&](const SlotState& state) {
      if (one_stream && slots.size() > 1 && state.kv.length() > free_cells() + slot.kv.length()) {
        throw Error(ErrorKind::out_of_memory, "the other slots hold too much of the shared context");
      }
      if (state.fingerprint != state_fingerprint)
        throw Error(ErrorKind::internal, "the state is of another model or layout");
      // Its blocks go first where they are dear: they are forgotten anyway.
      if (transport) slot.kv.truncate(0);
      with_room([&] { slot.kv.restore(on_device(state.kv), *pool, transformer->stream()); });
    };
    if (auto better = cache->take_better(slot.tokens, prompt, restore)) {
      slot.tokens = std::move(better->first);
      slot.checkpoints = std::move(better->second.checkpoints);
      if (slot.kv.length() != std::ssize(slot.tokens))
        throw Error(ErrorKind::internal, "the state is not of its tokens");
      slot.hits = better->second.hits + 1;
      slot.from_cache = true;
    }
  } catch (const std::exception& error) {
    log_error("slot {}: a cached state can't be brought back, the slot is emptied: {}", slot.id, error.what());
    slot.clear();
  }
  cache->update();
  const auto end = Clock::now();
  if (!transport) {
    metrics.save_seconds += milliseconds(saved - start) / 1000;
    metrics.load_seconds += milliseconds(end - saved) / 1000;
  }
  log_trace("slot {}: prompt cache updated in {:.3f} ms: {} entries, {} tokens, {:.1f} MiB", slot.id,
            milliseconds(end - start), cache->len(), cache->n_tokens(), static_cast<double>(cache->bytes()) / kMiB);
}

// The state shares the slot's blocks: nothing is copied until one side writes. Blocks of a device with memory of its
// own are then exchanged for copies in host memory, which are made while the slot goes on.
bool Engine::Impl::save_to_cache(Slot& slot) {
  const std::int64_t n = slot.kv.length();
  const std::int64_t in_window = slot.kv.part(KvPart::window).count_from(n - pool->window());
  const std::uint64_t state = pool->accounted_bytes(n, in_window, one_stream ? 1 : options.slots);
  std::optional<SlotState> kept;
  std::vector<KvBlock*> blocks;
  const auto prepare = [&] {
    if (kept) return;
    kept =
        SlotState{slot.kv.saved(*pool), slot.checkpoints, slot.hits, Clock::now(), slot.last_task, state_fingerprint};
    kept->collect_blocks(blocks);
  };
  const auto make_state = [&] {
    prepare();
    if (transport) transport->save(blocks, transformer->stream());
    return std::move(*kept);
  };
  const auto fits = [&] {
    if (!transport) return true;
    prepare();
    if (transport->fits(blocks)) return true;
    if (cache->is_empty()) transport->settle();  // what copies under way hold may be in the way
    return cache->is_empty() && transport->fits(blocks);
  };
  try {
    return cache->save(slot.tokens, state + slot.checkpoints.bytes(), make_state, fits);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::device) throw;
    log_error("slot {}: its state can't be saved: {}", slot.id, error.what());
    return false;
  }
}

// Saves that failed after they were queued.
void Engine::Impl::drop_broken_states() {
  if (!transport) return;
  transport->poll();
  if (const std::uint64_t failed = transport->stats().failed_saves; std::exchange(failed_saves_seen, failed) == failed)
    return;
  std::vector<KvBlock*> blocks;
  cache->drop_broken([&](SlotState& state) {
    blocks.clear();
    state.collect_blocks(blocks);
    return !transport->intact(blocks);
  });
}

void Engine::Impl::save_idle_slots(const Slot& started) {
  for (Slot& slot : slots) {
    if (&slot == &started || slot.run || slot.tokens.empty()) continue;
    try {
      save_idle_slot(slot);
    } catch (const std::exception& error) {
      log_warning("slot {}: idle, but can't be saved: {}", slot.id, error.what());
    }
  }
}

void Engine::Impl::save_idle_slot(Slot& slot) {
  const std::uint64_t cached_before = cache->counters().already_cached;
  const bool stored = save_to_cache(slot);
  if (stored) {
    log_debug("slot {}: idle, saved to the prompt cache __TEST_TAG_CACHE_IDLE_SLOT__", slot.id);
    cache->update();
  }
  // A state that could not be kept stays where it is.
  if (options.unified_kv && (stored || cache->counters().already_cached > cached_before)) slot.clear();
}

}  // namespace bankml
