// Giving waiting jobs a slot: docs/prompt-cache.md, sections 1, 3.1 and 7.
#include <algorithm>
#include <utility>

#include "bankml/base/log.hpp"
#include "engine/engine_impl.hpp"

namespace bankml {

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
    if (job) job->fail(failure(error));
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
  const bool taken = start_completion(slot, job);
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
      copies[i]->fail(failure(error));
      continue;
    }
    Run& run = *slot.run;
    run.waits_for = computing.job->id;
    run.shares_prompt = run.is_copy = true;
    run.started = computing.started;
    run.cached = computing.cached;
    run.processed = computing.processed;
    run.reuse = computing.reuse;
    slot.had_task = slot.has_next_token = true;
    slot.last_task = run.job->id;
    slot.last_params = run.job->params;
    guard(slot, [&] { run.job->sink(Started{slot.id, run.timings(), std::nullopt}); });
  }
}

// Whether the slot was the job's, be it that its length then ended it: that counts as a use of the slot. The job is
// left to the caller, to tell it of what is thrown, until its run has it.
bool Engine::Impl::start_completion(Slot& slot, std::unique_ptr<Job>& job) {
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
    publish();  // whoever sees the answer also sees what it left in the slot
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
    publish();
    refuse({ErrorKind::context_overflow,
            fmt::format("the request of {} tokens exceeds the available context size of {} tokens", n, slot_context), n,
            static_cast<int>(slot_context)});
    return true;
  }
  take();
  try {
    slot.run = std::make_unique<Run>(job, tokenizer);
  } catch (const std::exception& error) {
    return refuse(failure(error));
  }
  slot.has_next_token = true;
  guard(slot, [&] {
    Run& run = *slot.run;
    run.reuse = explain_reuse(slot, run);
    const std::size_t n_past = reuse(slot, run);
    run.cached = run.processed = static_cast<int>(n_past);
    metrics.prompt_tokens_cached += n_past;
    note_reuse(run);
    Started started{slot.id, run.timings(), std::nullopt};
    if (run.params().return_progress) started.progress = Progress{n, run.cached, run.cached, 0.0};
    run.job->sink(std::move(started));
  });
  return true;
}

}  // namespace bankml
