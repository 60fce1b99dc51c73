// One step of the loop: a batch of rows, the forward passes, and what follows from their logits (docs/prompt-cache.md,
// sections 4 and 5; docs/http-api.md, section 9).
#include <algorithm>
#include <cmath>

#include "bankml/base/log.hpp"
#include "engine/engine_impl.hpp"
#include "engine/prompt_cut.hpp"

namespace bankml {
namespace {

constexpr int kNoLogits = -1;

}  // namespace

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
    const PromptCut cut = cut_prompt(std::ssize(prompt), static_cast<std::int64_t>(from),
                                     static_cast<std::int64_t>(room), options.batch, options.ubatch, cut_points(slot));
    guard(slot, [&] { make_checkpoint(slot, cut.end); });
    if (!slot.run) continue;
    const std::size_t to = static_cast<std::size_t>(cut.end);
    for (std::size_t i = from; i < to; ++i) {
      rows.push_back({prompt[i], static_cast<std::int32_t>(i), slot.id, i + 1 == prompt.size()});
    }
    room -= to - from;
    if (cut.ends_step) break;
  }
}

// The batch is cut into forward passes of at most `ubatch` rows.
void Engine::Impl::step() {
  form_batch();
  if (rows.empty()) return;
  ++metrics.decode_steps;
  for (const Slot& slot : slots) metrics.busy_slot_steps += slot.run ? 1 : 0;

  std::size_t at = 0, fitting = 0;  // rows done; rows that there is room for
  while (at < rows.size()) {
    if (fitting == 0) fitting = fitting_rows(std::span(rows).subspan(at));
    if (fitting == 0)
      return fail_running(ErrorKind::internal,
                          fmt::format("the context size has been exceeded: the slots share {} tokens", total_context));
    const std::size_t n = next_pass(std::span(rows).subspan(at, std::min(fitting, rows.size() - at)), options.ubatch,
                                    one_stream, later_rows);
    if (!run_rows(std::span(rows).subspan(at, n))) return;
    at += n;
    fitting -= n;
    if (at == rows.size()) break;
    // A request may have been cancelled meanwhile: its rows are not computed.
    if (!take_arrivals(false)) return;
    rows.erase(std::remove_if(rows.begin() + static_cast<std::ptrdiff_t>(at), rows.end(),
                              [&](const BatchRow& row) { return !slots[static_cast<std::size_t>(row.sequence)].run; }),
               rows.end());
    publish();
  }
  for (Slot& slot : slots) {
    if (!slot.run || slot.run->generating || !slot.run->params().return_progress) continue;
    slot.run->job->sink(prompt_progress(*slot.run));
  }
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
    fail(slot, failure(kind_of(error), error.what()));
    return false;
  }
  slot.checkpoints.clear();
  slot.tokens.erase(slot.tokens.begin() + keep, slot.tokens.begin() + keep + drop);
  run.truncated = true;
  log_debug("slot {}: context shift, {} tokens kept, {} dropped", slot.id, keep, drop);
  return true;
}

// One forward pass and its results; false if it failed or nobody waits for it any more.
bool Engine::Impl::run_rows(std::span<const BatchRow> batch) {
  try {
    if (!transformer->forward(batch, sequences, &abort)) return false;
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
  for (const BatchRow& row : batch) {
    Slot& slot = slots[static_cast<std::size_t>(row.sequence)];
    guard(slot, [&] {
      slot.tokens.push_back(row.token);
      if (!slot.run->generating) ++slot.run->processed;
    });
  }
  int logits = 0;
  logits_of_slot.assign(slots.size(), kNoLogits);
  for (const BatchRow& row : batch) {
    if (!row.wants_logits) continue;
    Slot& slot = slots[static_cast<std::size_t>(row.sequence)];
    logits_of_slot[static_cast<std::size_t>(slot.id)] = logits;
    if (slot.run && slot.run->shares_prompt && !slot.run->is_copy && !slot.run->generating) share_prompt(slot, logits);
    ++logits;
  }
  // In the order of the slots, whatever the order of the rows: slots that are given back together keep it.
  for (Slot& slot : slots) {
    const int found = logits_of_slot[static_cast<std::size_t>(slot.id)];
    if (found == kNoLogits) continue;
    guard(slot, [&] { take_logits(slot, transformer->logits(found)); });
  }
  return true;
}

// The copies that wait for this slot's prompt get its state, and their first token from the same logits.
void Engine::Impl::share_prompt(Slot& first, int logits) {
  for (Slot& copy : slots) {
    if (!copy.run || copy.run->waits_for != first.run->job->id) continue;
    copy.run->waits_for = 0;
    logits_of_slot[static_cast<std::size_t>(copy.id)] = logits;
    guard(copy, [&] {
      copy.kv = first.kv;
      copy.tokens = first.tokens;
      copy.run->cached = first.run->cached;
      copy.run->processed = first.run->processed;
    });
  }
}

// Work for the request of one slot: what it throws fails that request and no other. Nothing is done for a request that
// has failed before.
template <class Work>
void Engine::Impl::guard(Slot& slot, Work&& work) noexcept {
  if (!slot.run) return;
  try {
    work();
  } catch (const std::exception& error) {
    log_error("slot {}: a request fails: {}", slot.id, error.what());
    if (slot.run) fail(slot, failure(kind_of(error), error.what()));
  }
}

void Engine::Impl::take_logits(Slot& slot, std::span<const float> logits) {
  Run& run = *slot.run;
  if (!run.generating) {
    if (run.params().return_progress) run.job->sink(prompt_progress(run));
    run.sampler.accept_prompt(run.job->prompt);
    run.generating = true;
  }
  const TokenId token = run.sampler.sample(logits);
  run.sampler.accept(token);
  run.last_token = Clock::now();
  if (run.sampled.empty()) {
    run.first_token = run.last_token;
    if (!run.is_copy) {  // whose prompt was computed by another
      metrics.prompt_tokens += static_cast<std::uint64_t>(run.processed - run.cached);
      metrics.prompt_seconds += milliseconds(run.first_token - run.started) / 1000;
    }
  }
  run.sampled.push_back(token);
  run.next = token;
  metrics.longest_sequence = std::max<std::uint64_t>(metrics.longest_sequence, slot.tokens.size());
  take_token(slot, token, logits);
}

std::optional<TokenProbability> Engine::Impl::probability(const Run& run, TokenId token,
                                                          std::span<const float> logits) const {
  const int n = run.params().n_probs;
  if (n <= 0) return std::nullopt;
  const bool special = run.params().special;
  const auto entry = [&](const Candidate& c) {
    TokenProbability p;
    p.id = c.id;
    p.bytes = tokenizer.piece(c.id, special);
    p.p = c.p;
    return p;
  };
  const std::size_t wanted = static_cast<std::size_t>(n);
  TokenProbability result;
  if (run.params().post_sampling_probs) {
    const std::vector<Candidate> candidates = run.sampler.last_candidates(static_cast<std::size_t>(tokenizer.size()));
    const auto chosen =
        std::find_if(candidates.begin(), candidates.end(), [&](const Candidate& c) { return c.id == token; });
    result = entry(chosen != candidates.end() ? *chosen : Candidate{token, 0.0f, 0.0f});
    for (std::size_t i = 0; i < std::min(wanted, candidates.size()); ++i) result.top.push_back(entry(candidates[i]));
  } else {
    const std::vector<Candidate> top = top_logprobs(logits, wanted, token);
    result = entry(top.back());
    for (std::size_t i = 0; i + 1 < top.size(); ++i) result.top.push_back(entry(top[i]));
  }
  return result;
}

void Engine::Impl::take_token(Slot& slot, TokenId token, std::span<const float> logits) {
  Run& run = *slot.run;
  const bool eog = tokenizer.is_eog(token);
  OutputText::Step text = run.output.push(tokenizer.piece(token, run.params().special), eog);
  if (text.stop_word) {
    run.stop = StopType::word;
    run.stopping_word = *text.stop_word;
    run.ended = true;
  }
  std::optional<TokenProbability> p = text.complete ? probability(run, token, logits) : std::nullopt;
  if (p) {
    p->bytes = text.text;  // what goes out with the token: nothing while held back, then all that was
    if (run.params().keep_probabilities) run.probabilities.push_back(*p);
  }
  check_limits(slot, text.text);
  if (eog) {
    run.stop = StopType::eos;
    run.ended = true;
  }
  if (text.complete) {
    Piece piece;
    piece.text = std::move(text.text);
    piece.token = token;
    piece.probability = std::move(p);
    piece.timings = run.timings();
    piece.ends_with_stop_word = text.stop_word != nullptr;
    run.job->sink(std::move(piece));
  }
  if (run.ended) finish(slot);
}

int Engine::Impl::token_budget(const Run& run) const noexcept {
  return run.params().n_predict >= 0 ? run.params().n_predict : options.n_predict;
}

// The checks after the stop words and before the end-of-generation token, in the peer's order: a later one overwrites
// the reason.
void Engine::Impl::check_limits(Slot& slot, const std::string& sent) {
  Run& run = *slot.run;
  const auto end = [&] {
    run.stop = StopType::limit;
    run.ended = true;
  };
  if (!options.context_shift && static_cast<std::int64_t>(slot.tokens.size()) + 1 >= slot_context) {
    run.truncated = true;
    end();
  }
  const int budget = token_budget(run);
  if (!run.ended && budget >= 0 && static_cast<int>(run.sampled.size()) >= budget) end();
  if (run.has_new_line && run.params().n_indent > 0) check_indentation(run);
  if (sent.find('\n') == std::string::npos) return;
  const std::int64_t limit_ms = run.params().t_max_predict_ms;
  if (run.has_new_line && limit_ms > 0 && milliseconds(Clock::now() - run.first_token) > static_cast<double>(limit_ms))
    end();
  run.has_new_line = true;
}

// Ends the run before a line that is indented less than asked for.
void Engine::Impl::check_indentation(Run& run) {
  const std::string& text = run.output.text();
  if (run.line_start > 0) {
    const std::size_t first = text.find_first_not_of(" \t", run.line_start);
    if (first != std::string::npos && first - run.line_start < static_cast<std::size_t>(run.params().n_indent)) {
      run.stop = StopType::limit;
      run.ended = true;
      run.output.cut(first);
      return;
    }
  }
  if (const std::size_t line = text.find('\n', run.line_start); line != std::string::npos) run.line_start = line + 1;
}

PromptProgress Engine::Impl::prompt_progress(const Run& run) {
  const int total = static_cast<int>(run.job->prompt.size());
  return {{total, run.cached, run.processed, milliseconds(Clock::now() - run.started)}, run.timings()};
}

void Engine::Impl::finish(Slot& slot) {
  Run& run = *slot.run;
  Done done;
  done.id_slot = slot.id;
  done.text = run.output.text();
  done.stop = run.stop;
  done.stopping_word = run.stopping_word;
  done.truncated = run.truncated;
  done.has_new_line = run.has_new_line;
  done.prompt_tokens = static_cast<int>(run.job->prompt.size());
  done.slot_tokens = static_cast<int>(slot.tokens.size());
  done.timings = run.timings();
  done.probabilities = std::move(run.probabilities);
  if (run.stop == StopType::word && !done.probabilities.empty()) {
    // The stop word's own tokens are not part of the answer.
    const std::size_t dropped = tokenizer.encode(run.stopping_word, false, false).size();
    done.probabilities.resize(done.probabilities.size() - std::min(done.probabilities.size(), dropped));
  }
  done.tokens = run.sampled;
  const JobSink sink = std::move(run.job->sink);
  release(slot);
  publish();  // whoever sees the answer also sees the slot idle
  sink(std::move(done));
}

void Engine::Impl::release(Slot& slot) {
  if (options.slot_texts) note_texts(slot);
  const Run& run = *slot.run;
  const std::uint64_t sampled = run.sampled.size();
  metrics.predicted_tokens += sampled;
  if (sampled > 0) {
    metrics.predicted_seconds += milliseconds(run.last_token - run.first_token) / 1000;
    metrics.generation_steps += sampled - 1;
  }
  const bool empties = run.is_copy;
  slot.run.reset();
  slot.note_release();
  if (empties) slot.clear();
}

// The state of the slot is in doubt: it goes with the request. Copies that wait for its prompt go with it.
void Engine::Impl::fail(Slot& slot, Failed failed) noexcept {
  const JobId id = slot.run->job->id;
  const ErrorKind kind = failed.kind;
  slot.run->job->fail(std::move(failed));
  release(slot);
  slot.clear();
  for (Slot& copy : slots) {
    if (copy.run && copy.run->waits_for == id) fail(copy, failure(kind, "the computation of the prompt failed"));
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
