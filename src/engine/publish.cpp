// What other threads see of the engine: a copy of it after each step.
#include "engine/engine_impl.hpp"

namespace bankml {

void Engine::Impl::publish_slot(const Slot& slot) {
  SlotSnapshot s;
  s.id = slot.id;
  s.context = slot_context;
  s.processing = slot.run != nullptr;
  s.had_task = slot.had_task;
  s.task = slot.last_task;
  s.has_next_token = slot.has_next_token;
  s.tokens = static_cast<int>(slot.tokens.size());
  s.params = slot.last_params;
  s.texts = slot.last_texts;
  s.checkpoints = slot.checkpoints.size();
  s.checkpoint_bytes = slot.checkpoints.bytes();
  metrics.slot_checkpoints += s.checkpoints;
  metrics.slot_checkpoint_bytes += s.checkpoint_bytes;
  if (slot.run) {
    const Run& run = *slot.run;
    s.processed = run.processed - run.cached;
    s.cached = run.cached;
    s.has_new_line = run.has_new_line;
    s.n_decoded = static_cast<int>(run.sampled.size());
    const int budget = token_budget(run);
    s.n_remain = budget < 0 ? -1 : budget - s.n_decoded;
  }
  next_snapshots.push_back(std::move(s));
}

void Engine::Impl::note_texts(Slot& slot) noexcept {
  try {
    slot.last_texts = std::make_shared<const SlotTexts>(SlotTexts{slot.run->job->prompt, slot.run->output.text()});
  } catch (const std::bad_alloc&) {  // better none than those of another task
    slot.last_texts.reset();
  }
}

// Without memory for it the listing stays as it was, until the next time.
void Engine::Impl::publish_cache() noexcept {
  std::vector<CachedConversation> conversations;
  try {
    for (const auto& entry : cache->entries()) {
      conversations.push_back(
          {entry.tokens.size(), entry.bytes, entry.state.saved, entry.state.hits, entry.state.task});
    }
  } catch (const std::bad_alloc&) {
    return;
  }
  cache_changed = false;
  const std::lock_guard lock(snapshot_mutex);
  cached_snapshot.swap(conversations);
}

void Engine::Impl::publish() {
  if (cache_changed) publish_cache();
  next_snapshots.clear();
  metrics.slot_checkpoints = metrics.slot_checkpoint_bytes = 0;
  int busy = 0;
  JobId last_busy = 0;
  for (Slot& slot : slots) {
    if (slot.run && options.slot_texts) note_texts(slot);
    publish_slot(slot);
    if (!slot.run) continue;
    ++busy;
    last_busy = slot.run->job->id;
  }
  metrics.requests_processing = busy;
  metrics.requests_deferred = static_cast<int>(waiting.size());
  metrics.kv_bytes_reserved = pool->bytes_reserved();
  metrics.kv_blocks_in_use = pool->blocks_in_use();
  if (transport) read_transport_stats();
  if (cache) {
    const PromptCacheCounters& counters = cache->counters();
    metrics.cache_entries = cache->len();
    metrics.cache_tokens = cache->n_tokens();
    metrics.cache_bytes = cache->bytes();
    metrics.cache_hits = counters.hits;
    metrics.cache_misses = counters.misses;
    metrics.cache_saves = counters.saved;
    metrics.evicted_for_bytes = counters.evicted_bytes;
    metrics.evicted_for_tokens = counters.evicted_tokens;
    metrics.evicted_for_memory = counters.evicted_memory;
    metrics.refused_no_memory = counters.no_memory + counters.allocation_failures;
    metrics.dropped_broken = counters.broken;
    metrics.dropped_obsolete = counters.obsolete;
    metrics.refused_too_large = counters.oversized;
    metrics.cache_checkpoints = metrics.cache_checkpoint_bytes = 0;
    for (const auto& entry : cache->entries()) {
      metrics.cache_checkpoints += entry.state.checkpoints.size();
      metrics.cache_checkpoint_bytes += entry.state.checkpoints.bytes();
    }
  }
  {
    const std::lock_guard lock(mutex);
    only_running = busy == 1 ? last_busy : 0;
  }
  const std::lock_guard lock(snapshot_mutex);
  slot_snapshots.swap(next_snapshots);
  metrics_snapshot = metrics;
}

}  // namespace bankml
