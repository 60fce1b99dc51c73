// From the logits of a slot to its next token, and on to the end of its request (docs/http-api.md, section 9).
#include <fmt/core.h>

#include <algorithm>

#include "engine/engine_impl.hpp"

namespace bankml {
namespace {

// Of an answer that is sent in one piece: some 100 MB here, and several times that as JSON.
constexpr std::size_t kMostProbabilities = 1 << 20;

void keep(const TokenProbability& p, Run& run) {
  run.kept_probabilities += p.top.size() + 1;
  if (run.kept_probabilities > kMostProbabilities) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("n_probs: the answer has more than {} probabilities; ask for fewer, or for a stream",
                            kMostProbabilities));
  }
  run.probabilities.push_back(p);
}

}  // namespace

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
    if (run.params().keep_probabilities) keep(*p, run);
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
  slot.has_next_token = false;
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

}  // namespace bankml
