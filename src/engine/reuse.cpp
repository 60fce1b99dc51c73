// What a prompt can use again of its slot, and the checkpoints that let layers with a window go back
// (docs/prompt-cache.md, sections 3.2 and 3.4).
#include <algorithm>
#include <utility>

#include "bankml/base/log.hpp"
#include "engine/engine_impl.hpp"
#include "engine/prompt_cut.hpp"

namespace bankml {
namespace {

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
      if (const auto* found = slot.checkpoints.find(n_past, needed_from)) {
        const auto checkpoint = *found;  // which may be the one that gives way
        with_room([&] { slot.kv.restore_window(on_device(checkpoint.state), *pool, transformer->stream()); });
        reached = std::min(n_past, std::max(checkpoint.first + 1, checkpoint.last));
        n_past = std::min({reached, held, checkpoint.tokens});
        ++metrics.checkpoints_restored;
        log_debug("slot {}: back to a checkpoint of {} tokens, {} are used", slot.id, checkpoint.tokens, n_past);
      } else {
        log_debug("slot {}: no checkpoint for {} tokens, starting anew", slot.id, n_past);
        n_past = reached = 0;
      }
    }
  }
  slot.checkpoints.drop_beyond(reached);
  return n_past;
}

CutPoints Engine::Impl::cut_points(const Slot& slot) const noexcept {
  if (window == 0 || options.checkpoints == 0 || slot.run->params().is_infill) return {};
  return {true, slot.run->params().user_messages, slot.checkpoints.newest_tokens(), options.checkpoint_min_step};
}

// Keeps the state before a step of the prompt that ends at `end`, if the rules want it.
void Engine::Impl::make_checkpoint(Slot& slot, std::int64_t end) {
  const CutPoints cuts = cut_points(slot);
  const auto held = std::ssize(slot.tokens);
  const auto total = std::ssize(slot.run->job->prompt);
  if (!cuts.wanted || held == 0) return;
  if (!checkpoint_due(total, held, end, options.ubatch, cuts.user_messages, cuts.newest, cuts.min_step)) return;
  const KvCells& in_window = slot.kv.part(KvPart::window);
  const std::int64_t first = in_window.first_position();
  const std::uint64_t bytes =
      pool->accounted_checkpoint_bytes(in_window.count_from(held - window), one_stream ? 1 : options.slots);
  slot.checkpoints.add({held, first, held - 1, slot.run->job->id, bytes}, checkpoint_state(slot),
                       {options.checkpoints, options.checkpoint_min_step});
  ++metrics.checkpoints_made;
  log_debug("slot {}: checkpoint {} of {}: {} tokens, window layers hold them from {} on", slot.id,
            slot.checkpoints.size(), options.checkpoints, held, first);
}

// Where the device has memory of its own, checkpoints lie in host memory, as far as it reaches.
KvCells Engine::Impl::checkpoint_state(const Slot& slot) {
  KvCells state = slot.kv.saved_window(*pool);
  if (!transport) return state;
  std::vector<KvBlock*> blocks;
  state.collect_blocks(blocks);
  try {
    if (transport->fits(blocks)) transport->save(blocks, transformer->stream());
  } catch (const Error& error) {
    log_warning("slot {}: a checkpoint stays on the device: {}", slot.id, error.what());
  }
  return state;
}

// Those that host memory had no room for, of idle slots first. False: there is none.
bool Engine::Impl::drop_checkpoint_on_device() {
  if (model.device().shares_host_memory()) return false;
  const auto on_device = [](const KvCells& state) {
    return std::any_of(state.blocks().begin(), state.blocks().end(),
                       [](const KvBlock& block) { return block && !block.on_host(); });
  };
  for (const bool busy : {false, true}) {
    for (Slot& slot : slots) {
      if ((slot.run != nullptr) != busy || !slot.checkpoints.drop_oldest(on_device)) continue;
      log_warning("slot {}: memory of the device is short, its oldest checkpoint there is dropped", slot.id);
      return true;
    }
  }
  return false;
}

}  // namespace bankml
