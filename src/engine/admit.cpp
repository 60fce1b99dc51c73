// Giving waiting jobs a slot: docs/prompt-cache.md, sections 1, 2, 3.1, 3.2 and 7.
#include <algorithm>
#include <utility>

#include "bankml/base/log.hpp"
#include "engine/engine_impl.hpp"

namespace bankml {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;

// The smallest position that cells hold once `runs` are where the prompt has them; those from `rest` on are still there
// then. -1: none.
std::int64_t first_after(const KvCells& cells, std::span<const KvSequence::Run> runs, std::int64_t rest) {
  std::int64_t first = -1;
  const auto take = [&](std::int64_t position) { first = first < 0 ? position : std::min(first, position); };
  for (std::int64_t cell = 0; cell < cells.cells(); ++cell) {
    const std::int64_t position = cells.position(cell);
    if (position >= rest) take(position);
    for (const KvSequence::Run& run : runs) {
      if (position >= run.from && position < run.from + run.count) take(position + run.to - run.from);
    }
  }
  return first;
}

}  // namespace

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

// Starts every waiting job that has a usable slot. Of the deferred ones, those that name an idle slot go first;
// otherwise the order is that of arrival. All are looked at again whenever one has started, so none is left waiting
// beside an idle slot.
void Engine::Impl::admit() {
  const auto names_idle_slot = [&](const Job& job) {
    return job.deferred && job.kind == Job::Kind::completion && job.params->id_slot >= 0 &&
           job.params->id_slot < options.slots && !slots[static_cast<std::size_t>(job.params->id_slot)].run;
  };
  const auto idle = [](const Slot& slot) { return !slot.run; };
  const auto start_one = [&](bool named) {
    for (auto it = waiting.begin(); it != waiting.end(); ++it) {
      if (names_idle_slot(**it) != named || !start_or_fail(*it)) continue;
      waiting.erase(it);
      return true;
    }
    return false;
  };
  while (!waiting.empty() && std::any_of(slots.begin(), slots.end(), idle)) {
    if (!start_one(true) && !start_one(false)) return;
  }
  for (auto& job : waiting) job->deferred = true;
}

// What goes wrong here is the failure of this job alone.
bool Engine::Impl::start_or_fail(std::unique_ptr<Job>& job) {
  try {
    return try_start(job);
  } catch (const std::exception& error) {
    log_error("a request can't be started: {}", error.what());
    if (job) job->fail(failure(kind_of(error), error.what()));
    return true;
  }
}

// Whether the job has left the queue: running, answered or refused.
bool Engine::Impl::try_start(std::unique_ptr<Job>& job) {
  if (job->kind != Job::Kind::completion) {
    Slot& slot = slots[static_cast<std::uint64_t>(job->slot) % slots.size()];
    job->deferred = slot.run != nullptr;
    if (job->deferred) return false;
    start_action(slot, *job);
    return true;
  }
  views.clear();
  for (const Slot& slot : slots) views.push_back({slot.tokens, slot.run != nullptr, slot.released});
  const CompletionParams& params = *job->params;
  const SlotChoice choice = choose_slot(views, job->prompt, params.id_slot, options.slot_prompt_similarity);
  // A busy slot is left alone: its state is touched only when the job really starts.
  job->deferred = !choice.slot || slots[*choice.slot].run;
  if (job->deferred) return false;
  Slot& slot = slots[*choice.slot];
  const std::vector<Slot*> for_copies = slots_for_copies(slot, job->copies.size());
  job->deferred = for_copies.size() < job->copies.size();
  if (job->deferred) return false;
  switch (choice.by) {
    case SlotChoice::By::id:
      log_debug("slot {}: chosen by id", slot.id);
      break;
    case SlotChoice::By::similarity:
      log_debug("slot {}: chosen by similarity {:.3f} (more than {:.3f}), keep {:.3f}", slot.id, choice.similarity,
                options.slot_prompt_similarity, choice.keep);
      break;
    case SlotChoice::By::least_recent:
      log_debug("slot {}: chosen as least recently used ({})", slot.id, slot.released);
      break;
    case SlotChoice::By::none:
      break;
  }
  if (choice.due && cache && !params.is_infill) exchange_state(slot, job->prompt);
  const bool taken = start_completion(slot, std::move(job));
  if (slot.run && !for_copies.empty()) start_copies(slot, for_copies, std::move(slot.run->job->copies));
  if (taken && options.cache_idle_slots && cache && slots.size() > 1) save_idle_slots(slot);
  return true;
}

// The idle slots with the lowest ids beside the chosen one, at most `copies`.
std::vector<Slot*> Engine::Impl::slots_for_copies(const Slot& chosen, std::size_t copies) {
  std::vector<Slot*> found;
  for (Slot& slot : slots) {
    if (found.size() < copies && !slot.run && slot.id != chosen.id) found.push_back(&slot);
  }
  return found;
}

// The copies overwrite their slots without saving them, and wait for the prompt of the first.
void Engine::Impl::start_copies(Slot& first, std::span<Slot* const> chosen, std::vector<std::unique_ptr<Job>> copies) {
  const Run& computing = *first.run;
  first.run->shares_prompt = true;
  for (std::size_t i = 0; i < copies.size(); ++i) {
    Slot& slot = *chosen[i];
    slot.clear();
    try {
      copies[i]->prompt = computing.job->prompt;
      slot.run = std::make_unique<Run>(copies[i], tokenizer);
    } catch (const std::exception& error) {
      copies[i]->fail(failure(kind_of(error), error.what()));
      continue;
    }
    Run& run = *slot.run;
    run.waits_for = computing.job->id;
    run.shares_prompt = run.is_copy = true;
    run.started = computing.started;
    run.cached = computing.cached;
    run.processed = computing.processed;
    run.reuse = computing.reuse;
    slot.had_task = true;
    slot.last_task = run.job->id;
    slot.last_params = run.job->params;
    run.job->sink(Started{slot.id, run.timings(), std::nullopt});
  }
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
      slot.kv.restore(on_device(state.kv), *pool, transformer->stream());
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

// Whether the slot was the job's, be it that its length then ended it: that counts as a use of the slot.
bool Engine::Impl::start_completion(Slot& slot, std::unique_ptr<Job> job) {
  const int n = static_cast<int>(job->prompt.size());
  const auto refuse = [&](Failed failed) {
    job->fail(std::move(failed));
    return false;
  };
  const auto take = [&] {
    slot.had_task = true;
    slot.last_task = job->id;
    slot.last_params = job->params;
  };
  for (const TokenId token : job->prompt) {
    if (tokenizer.valid(token)) continue;
    return refuse(
        {ErrorKind::invalid_request, fmt::format("the prompt holds token {}, but the vocabulary has the tokens 0 to {}",
                                                 token, tokenizer.size() - 1)});
  }
  if (n == 0) {
    take();
    slot.note_release();
    Done done;
    done.id_slot = slot.id;
    done.slot_tokens = static_cast<int>(slot.tokens.size());
    for (auto& copy : job->copies) copy->sink(Done(done));
    job->sink(std::move(done));
    return true;
  }
  if (n >= slot_context) {
    take();
    slot.note_release();
    refuse({ErrorKind::context_overflow,
            fmt::format("the request of {} tokens exceeds the available context size of {} tokens", n, slot_context), n,
            static_cast<int>(slot_context)});
    return true;
  }
  take();
  try {
    slot.run = std::make_unique<Run>(job, tokenizer);
  } catch (const std::exception& error) {
    return refuse(failure(kind_of(error), error.what()));
  }
  Run& run = *slot.run;
  std::size_t n_past = 0;
  try {
    run.reuse = explain_reuse(slot, run);
    n_past = reuse(slot, run);
  } catch (const std::exception& error) {
    fail(slot, failure(kind_of(error), error.what()));
    return true;
  }
  run.cached = run.processed = static_cast<int>(n_past);
  metrics.prompt_tokens_cached += n_past;
  note_reuse(run);

  Started started{slot.id, run.timings(), std::nullopt};
  if (run.params().return_progress) started.progress = Progress{n, run.cached, run.cached, 0.0};
  run.job->sink(std::move(started));
  return true;
}

// What the prompt is compared with, before the slot is cut.
PromptReuse Engine::Impl::explain_reuse(Slot& slot, const Run& run) const {
  const bool from_cache = std::exchange(slot.from_cache, false);
  PromptReuse reuse;
  if (slot.tokens.empty() || !run.params().cache_prompt) return reuse;
  const std::vector<TokenId>& prompt = run.job->prompt;
  reuse.from = from_cache ? PromptReuse::From::ram : PromptReuse::From::slot;
  const std::size_t common = lcp(slot.tokens, prompt);
  if (common < prompt.size()) reuse.differs_at = static_cast<int>(common);
  return reuse;
}

// `run` knows what it could use again; a conversation that is gone may have had more.
void Engine::Impl::note_reuse(Run& run) {
  const auto kept = static_cast<std::uint64_t>(run.cached);
  (run.reuse.from == PromptReuse::From::ram ? metrics.reused_from_ram : metrics.reused_from_slot) += kept;
  run.reuse.lost_to_limit = run.params().cache_prompt && lost.longest_prefix(run.job->prompt) > kept + 1;
  if (run.reuse.lost_to_limit) ++metrics.lost_to_limits;
}

// Cuts the slot to what the prompt can use again and returns its length: the common prefix, and with `n_cache_reuse`
// also later runs of equal tokens, moved to where the prompt has them.
std::size_t Engine::Impl::reuse(Slot& slot, const Run& run) {
  const std::vector<TokenId>& prompt = run.job->prompt;
  const std::size_t common = run.params().cache_prompt ? lcp(slot.tokens, prompt) : 0;
  std::size_t n_past = common;
  std::int64_t first_in_window = slot.kv.part(KvPart::window).first_position();
  if (const int least = run.params().n_cache_reuse; least > 0 && run.params().cache_prompt && can_move_positions) {
    std::vector<KvSequence::Run> runs = {{0, static_cast<std::int64_t>(common), 0}};
    std::size_t from = common;
    while (from < slot.tokens.size() && n_past < prompt.size()) {
      const std::size_t length = lcp(std::span(slot.tokens).subspan(from), std::span(prompt).subspan(n_past));
      if (length < static_cast<std::size_t>(least)) {
        ++from;
        continue;
      }
      runs.push_back(
          {static_cast<std::int64_t>(from), static_cast<std::int64_t>(length), static_cast<std::int64_t>(n_past)});
      from += length;
      n_past += length;
    }
    if (runs.size() > 1) {
      first_in_window = first_after(slot.kv.part(KvPart::window), runs, static_cast<std::int64_t>(from));
      transformer->keep(slot.kv, runs);
    }
  }
  n_past =
      static_cast<std::size_t>(roll_back(slot, static_cast<std::int64_t>(n_past), std::ssize(prompt), first_in_window));
  if (n_past == prompt.size() && n_past > 0) --n_past;  // at least one token has to give logits
  slot.tokens.assign(prompt.begin(), prompt.begin() + static_cast<std::ptrdiff_t>(n_past));
  slot.kv.truncate(static_cast<std::int64_t>(n_past));
  return n_past;
}

// Window layers may have forgotten what the token after the first n_past ones sees. Then the slot goes back to a
// checkpoint, or to the start (docs/prompt-cache.md, 3.4). `first`: the smallest position that they hold. Returns the
// tokens that can be used; the caller cuts the slot to them.
std::int64_t Engine::Impl::roll_back(Slot& slot, std::int64_t n_past, std::int64_t total, std::int64_t first) {
  if (pool->window() == 0) return n_past;
  const auto held = std::ssize(slot.tokens);
  std::int64_t reached = n_past;
  if (n_past > 0 && n_past <= held) {
    const std::int64_t needed_from = std::max<std::int64_t>(0, n_past - window - (n_past < total ? 0 : 1));
    if (first < 0 || first >= needed_from) {
      if (const auto* checkpoint = slot.checkpoints.find(n_past, needed_from)) {
        slot.kv.restore_window(on_device(checkpoint->state), *pool, transformer->stream());
        reached = std::min(n_past, std::max(checkpoint->first + 1, checkpoint->last));
        n_past = std::min({reached, held, checkpoint->tokens});
        ++metrics.checkpoints_restored;
        log_debug("slot {}: back to a checkpoint of {} tokens, {} are used", slot.id, checkpoint->tokens, n_past);
      } else {
        log_debug("slot {}: no checkpoint for {} tokens, starting anew", slot.id, n_past);
        n_past = reached = 0;
      }
    }
  }
  slot.checkpoints.drop_beyond(reached);
  return n_past;
}

}  // namespace bankml
