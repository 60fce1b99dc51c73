#pragma once
// A slot and the job that it works on.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "bankml/engine/engine.hpp"
#include "engine/checkpoints.hpp"
#include "engine/output_text.hpp"

namespace bankml {

using Clock = std::chrono::steady_clock;

inline double milliseconds(Clock::duration d) noexcept {
  return std::chrono::duration<double, std::milli>(d).count();
}

// Never throws: without memory for the message, it is a shorter one, which takes none.
inline Failed failure(ErrorKind kind, std::string_view message) noexcept {
  Failed failed;
  failed.kind = kind;
  try {
    failed.message = message;
  } catch (const std::exception&) {
    failed.message = "out of memory";
  }
  return failed;
}

// What was asked of the engine and waits or runs.
struct Job {
  enum class Kind { completion, save, restore, erase };
  JobId id = 0;
  Kind kind = Kind::completion;
  bool deferred = false;  // found no usable slot once; then a job that names a slot goes before those that name none
  // completion
  std::vector<TokenId> prompt;
  std::shared_ptr<const CompletionParams> params;
  JobSink sink;
  // slot actions
  std::int64_t slot = 0;
  std::string file_name;
  SlotActionDone done;
  // Further answers to the same prompt, with their own params and sinks; they start with this one.
  std::vector<std::unique_ptr<Job>> copies;

  // Never throws, whatever the receiver does: a failure that can't be told must not become one of others.
  void fail(Failed failed) noexcept {
    for (auto& copy : copies) {
      Failed own = failure(failed.kind, failed.message);
      own.prompt_tokens = failed.prompt_tokens;
      own.context = failed.context;
      own.cancelled = failed.cancelled;
      copy->fail(std::move(own));
    }
    copies.clear();
    try {
      if (kind == Kind::completion) {
        if (sink) sink(std::move(failed));
      } else if (done) {
        done(std::move(failed));
      }
    } catch (const std::exception&) {
    }
  }
};

// A completion while it runs.
struct Run {
  // Takes the job over only if nothing throws: Error(invalid_request) for sampling parameters that can't be used.
  Run(std::unique_ptr<Job>& j, const Tokenizer& tokenizer)
      : sampler(j->params->sampling, tokenizer), output(j->params->stop), job(std::move(j)), started(Clock::now()) {}

  const CompletionParams& params() const noexcept { return *job->params; }
  Timings timings() const noexcept;

  Sampler sampler;
  OutputText output;
  std::unique_ptr<Job> job;
  Clock::time_point started, first_token, last_token;
  int cached = 0;     // prompt tokens that were in the slot
  int processed = 0;  // prompt tokens of the slot now, cached ones included
  PromptReuse reuse;
  bool generating = false;
  JobId waits_for = 0;                          // a copy: the job that computes the prompt, until that is done
  bool shares_prompt = false, is_copy = false;  // one of several answers to one prompt; not the first
  TokenId next = 0;                             // sampled, not yet evaluated
  std::vector<TokenId> sampled;
  std::vector<TokenProbability> probabilities;
  std::size_t kept_probabilities = 0;  // in these, alternatives included
  StopType stop = StopType::none;
  std::string stopping_word;
  bool truncated = false, has_new_line = false;
  std::size_t line_start = 0;  // of the last line whose indentation was looked at
  bool ended = false;
};

inline Timings Run::timings() const noexcept {
  constexpr double kLeastGenerationMs = 0.001;
  Timings t;
  t.cache_n = cached;
  t.prompt_n = processed - cached;
  t.predicted_n = static_cast<int>(sampled.size());
  t.reuse = reuse;
  t.task = job->id;
  if (sampled.empty()) {
    t.prompt_ms = t.prompt_n > 0 ? milliseconds(Clock::now() - started) : 0.0;
  } else {
    t.prompt_ms = milliseconds(first_token - started);
    t.predicted_ms = std::max(kLeastGenerationMs, milliseconds(last_token - first_token));
  }
  return t;
}

// What goes on from the tokens of a conversation.
struct SlotState {
  KvSequence kv;
  Checkpoints<KvCells> checkpoints;
  int hits = 0;                   // how often the conversation has been brought back
  Clock::time_point saved;        // when it went to the cache
  JobId task = 0;                 // the last one that worked on it
  std::uint64_t fingerprint = 0;  // of the model, the cache types and the layout of blocks

  void collect_blocks(std::vector<KvBlock*>& out) {
    kv.collect_blocks(out);
    checkpoints.for_each_state([&](KvCells& state) { state.collect_blocks(out); });
  }
};

struct Slot {
  int id = 0;
  KvSequence kv;  // of `tokens`
  std::vector<TokenId> tokens;
  Checkpoints<KvCells> checkpoints;
  std::int64_t released = -1;  // microseconds of a steady clock, -1: never used
  std::unique_ptr<Run> run;    // busy while set
  JobId last_task = 0;         // shown in listings after the task has ended
  std::shared_ptr<const CompletionParams> last_params;
  std::shared_ptr<const SlotTexts> last_texts;  // where snapshots are to have them
  bool had_task = false;
  bool has_next_token = true;  // as the peer lists it: until a run ends by itself, whatever is refused after that
  int hits = 0;                // of its conversation in the prompt cache
  bool from_cache = false;     // its state came from there for the job that starts now

  void note_release() noexcept {
    released = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
  }

  void clear() {
    hits = 0;
    tokens.clear();
    checkpoints.clear();
    kv.truncate(0);
  }
};

}  // namespace bankml
