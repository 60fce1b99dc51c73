// One step of the loop: a batch of rows, the forward passes, and what follows from their logits (docs/prompt-cache.md,
// sections 4 and 5; docs/http-api.md, section 9).
#include <algorithm>

#include "bankml/base/log.hpp"
#include "engine/engine_impl.hpp"
#include "engine/prompt_cut.hpp"

namespace bankml {

// First one token of every generating slot, then tokens of prompts, in the order of the slots, up to the batch size.
void Engine::Impl::form_batch() {
  rows.clear();
  for (Slot& slot : slots) {
    if (!slot.run || !slot.run->generating) continue;
    if (!shift_context(slot)) continue;
    rows.push_back({slot.run->next, static_cast<std::int32_t>(slot.tokens.size()), slot.id, true});
  }
  if (!options.continuous_batching && !rows.empty()) return;
  std::size_t room =
      static_cast<std::size_t>(options.batch) - std::min(rows.size(), static_cast<std::size_t>(options.batch));
  for (Slot& slot : slots) {
    if (room == 0) break;
    if (!slot.run || slot.run->generating || slot.run->waits_for != 0) continue;
    const std::vector<TokenId>& prompt = slot.run->job->prompt;
    const std::size_t from = slot.tokens.size();
    const std::int64_t end =
        cut_prompt(std::ssize(prompt), static_cast<std::int64_t>(from), static_cast<std::int64_t>(room), options.batch,
                   options.ubatch, cut_points(slot));
    guard(slot, [&] { make_checkpoint(slot, end); });
    if (!slot.run) continue;
    const std::size_t to = static_cast<std::size_t>(end);
    for (std::size_t i = from; i < to; ++i) {
      rows.push_back({prompt[i], static_cast<std::int32_t>(i), slot.id, i + 1 == prompt.size()});
    }
    room -= to - from;
  }
}

// A batch is one decode, or several where the slots share too little memory for all of its rows.
void Engine::Impl::step() {
  form_batch();
  if (rows.empty()) return;
  ++metrics.decode_steps;
  for (const Slot& slot : slots) metrics.busy_slot_steps += slot.run ? 1 : 0;

  std::span<BatchRow> left = rows;
  while (!left.empty()) {
    const std::size_t fitting = fitting_rows(left);
    if (fitting == 0)
      return fail_running(ErrorKind::internal,
                          fmt::format("the context size has been exceeded: the slots share {} tokens", total_context));
    if (!decode(left.first(fitting))) return;
    left = still_wanted(left.subspan(fitting));
  }
  for (Slot& slot : slots) {
    if (!slot.run || slot.run->generating || !slot.run->params().return_progress) continue;
    slot.run->job->sink(prompt_progress(*slot.run));
  }
}

// Forward passes of at most `ubatch` rows, then what follows from all of their logits: the peer, too, hands out tokens
// only when a whole decode is done, in the order of the slots. False if a pass failed or nobody waits for it any more;
// what was computed before it is handed out all the same, as these rows are part of their slots now.
bool Engine::Impl::decode(std::span<BatchRow> batch) {
  logits_of_slot.assign(slots.size(), {});
  bool whole = true;
  while (whole && !batch.empty()) {
    const std::size_t n = next_pass(batch, options.ubatch, one_stream, later_rows);
    whole = run_rows(batch.first(n));
    batch = batch.subspan(n);
    if (!whole || batch.empty()) break;
    keep_logits();
    whole = take_arrivals(false);  // a request may have been cancelled meanwhile: its rows are not computed
    batch = still_wanted(batch);
    publish();
  }
  hand_out_logits();
  return whole;
}

// The rows whose requests have not ended, in their order.
std::span<BatchRow> Engine::Impl::still_wanted(std::span<BatchRow> batch) const noexcept {
  const auto ended = [&](const BatchRow& row) { return !slots[static_cast<std::size_t>(row.sequence)].run; };
  const auto end = std::remove_if(batch.begin(), batch.end(), ended);
  return batch.first(static_cast<std::size_t>(end - batch.begin()));
}

// Cells that are left of the context which the slots of a unified cache share.
std::int64_t Engine::Impl::free_cells() const noexcept {
  std::int64_t free = total_context;
  for (const Slot& slot : slots) {
    // The prompt of several answers is held once.
    const bool shares = slot.run && slot.run->is_copy;
    free -= slot.kv.length() - (shares ? std::min(std::ssize(slot.run->job->prompt), slot.kv.length()) : 0);
  }
  return free;
}

// How many of these rows the KV memory that the slots of a unified cache share has room for. Idle slots lose their
// state for it, in the order of their ids; then the peer tries half as many rows, and so on. 0: not even one.
std::size_t Engine::Impl::fitting_rows(std::span<const BatchRow> batch) {
  if (!one_stream || slots.size() == 1) return batch.size();
  const auto room = [&] { return static_cast<std::size_t>(std::max<std::int64_t>(free_cells(), 0)); };
  for (Slot& slot : slots) {
    if (room() >= batch.size()) break;
    if (slot.run || slot.tokens.empty()) continue;
    log_warning("slot {}: idle, its {} tokens are dropped to make room", slot.id, slot.tokens.size());
    slot.clear();
  }
  std::size_t most = std::min(batch.size(), static_cast<std::size_t>(options.batch));
  for (std::size_t tried = static_cast<std::size_t>(options.batch); most > room(); tried /= 2)
    most = std::min(most, tried / 2);
  return most;
}

// With the context shift on, a full slot drops a part of its tokens behind the first ones (docs/prompt-cache.md, 3.3).
// False if that failed: then the request has failed.
bool Engine::Impl::shift_context(Slot& slot) {
  constexpr std::int64_t kLeastRest = 4;  // tokens that are never kept, so that there is something to drop
  const std::int64_t held = static_cast<std::int64_t>(slot.tokens.size());
  if (!options.context_shift || held + 1 < slot_context) return true;
  Run& run = *slot.run;
  const CompletionParams& params = run.params();
  if (run.shares_prompt) {
    run.job->fail(failure(ErrorKind::internal, "the context shift can't be used by several answers to one prompt"));
    release(slot);
    return false;
  }
  std::int64_t keep = params.n_keep < 0 ? static_cast<std::int64_t>(run.job->prompt.size()) : params.n_keep;
  keep = std::min(slot_context - kLeastRest, keep + (tokenizer.adds_bos() ? 1 : 0));
  const std::int64_t left = held - keep;
  const std::int64_t drop = std::clamp<std::int64_t>(params.n_discard != 0 ? params.n_discard : left / 2, 0,
                                                     std::max<std::int64_t>(0, left - 1));
  const KvSequence::Run runs[] = {{0, keep, 0}, {keep + drop, left - drop, keep}};
  try {
    transformer->keep(slot.kv, runs);
  } catch (const std::exception& error) {
    fail(slot, failure(error));
    return false;
  }
  slot.checkpoints.clear();
  slot.tokens.erase(slot.tokens.begin() + keep, slot.tokens.begin() + keep + drop);
  run.truncated = true;
  log_debug("slot {}: context shift, {} tokens kept, {} dropped", slot.id, keep, drop);
  return true;
}

// One forward pass: its rows become part of their slots, and its logits are noted. False if it failed or nobody waits
// for it any more.
bool Engine::Impl::run_rows(std::span<const BatchRow> batch) {
  try {
    if (!with_room([&] { return transformer->forward(batch, sequences, &abort); })) return false;
  } catch (const std::exception& error) {
    if (kind_of(error) == ErrorKind::out_of_memory) {
      fail_youngest(batch, error.what());
    } else {
      fail_running(kind_of(error), error.what());
    }
    return false;
  }
  if (transport) transport->poll();
  beat();
  int logits = 0;
  for (const BatchRow& row : batch) {
    Slot& slot = slots[static_cast<std::size_t>(row.sequence)];
    guard(slot, [&] {
      slot.tokens.push_back(row.token);
      if (!slot.run->generating) ++slot.run->processed;
    });
    if (row.wants_logits) logits_of_slot[static_cast<std::size_t>(slot.id)] = transformer->logits(logits++);
  }
  return true;
}

// Before another pass of the same decode overwrites them.
void Engine::Impl::keep_logits() {
  kept_logits.resize(slots.size());
  for (Slot& slot : slots) {
    std::span<const float>& logits = logits_of_slot[static_cast<std::size_t>(slot.id)];
    std::vector<float>& kept = kept_logits[static_cast<std::size_t>(slot.id)];
    if (logits.empty() || logits.data() == kept.data()) continue;
    guard(slot, [&] { kept.assign(logits.begin(), logits.end()); });
    logits = kept;
  }
}

// In the order of the slots, whatever the order of the rows: slots that are given back together keep it.
void Engine::Impl::hand_out_logits() {
  for (Slot& slot : slots) {
    if (logits_of_slot[static_cast<std::size_t>(slot.id)].empty() || !slot.run) continue;
    if (slot.run->shares_prompt && !slot.run->is_copy && !slot.run->generating) share_prompt(slot);
  }
  for (Slot& slot : slots) {
    const std::span<const float> logits = logits_of_slot[static_cast<std::size_t>(slot.id)];
    if (!logits.empty()) guard(slot, [&] { take_logits(slot, logits); });
  }
}

// The copies that wait for this slot's prompt get its state, and their first token from the same logits.
void Engine::Impl::share_prompt(Slot& first) {
  for (Slot& copy : slots) {
    if (!copy.run || copy.run->waits_for != first.run->job->id) continue;
    copy.run->waits_for = 0;
    logits_of_slot[static_cast<std::size_t>(copy.id)] = logits_of_slot[static_cast<std::size_t>(first.id)];
    guard(copy, [&] {
      copy.kv = first.kv;
      copy.tokens = first.tokens;
      copy.run->cached = first.run->cached;
      copy.run->processed = first.run->processed;
    });
  }
}

// Without memory for all rows of a pass, which has changed nothing then, the request that came last gives way.
void Engine::Impl::fail_youngest(std::span<const BatchRow> batch, std::string_view message) noexcept {
  Slot* youngest = nullptr;
  for (const BatchRow& row : batch) {
    Slot& slot = slots[static_cast<std::size_t>(row.sequence)];
    if (slot.run && (!youngest || slot.run->job->id > youngest->run->job->id)) youngest = &slot;
  }
  if (!youngest) return;
  log_error("no memory for a forward pass, request {} fails: {}", youngest->run->job->id, message);
  fail(*youngest, failure(ErrorKind::out_of_memory, message));
}

// After a failed forward pass the state of the slots that took part is unknown.
void Engine::Impl::fail_running(ErrorKind kind, std::string_view message) noexcept {
  log_error("a forward pass failed: {}", message);
  if (transport) transport->settle();  // it may have failed with a copy that it waited for
  for (Slot& slot : slots) {
    if (slot.run) fail(slot, failure(kind, message));
  }
}

}  // namespace bankml
