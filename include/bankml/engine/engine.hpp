#pragma once
// The engine: one thread that admits requests to slots, forms batches, runs them and hands out the results.
//
// Any thread may call the public functions. A job's sink is called on the engine thread (on the caller's, within
// submit(), once the engine has stopped), in order, and never after Done or Failed; it must neither block nor throw.
// Each job ends in exactly one Done or Failed, also when it is cancelled or the engine stops.
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/engine/sampling.hpp"
#include "bankml/model/model.hpp"
#include "bankml/text/tokenizer.hpp"

namespace bankml {

using JobId = std::uint64_t;

struct EngineOptions {
  int slots = 1;
  std::int64_t context = 0;        // tokens in all; 0: the model's training length
  int batch = 2048, ubatch = 512;  // tokens of a step; rows of a forward pass
  DType cache_type_k = DType::f16, cache_type_v = DType::f16;
  std::optional<std::int64_t>
      cache_ram_mib;  // 0 off, negative no limit; unset: 8192 or a quarter of the available memory
  float slot_prompt_similarity = 0.1f;
  int n_predict = -1;                 // default token budget
  bool unified_kv = false;            // every slot may use the whole context
  std::int64_t context_per_slot = 0;  // of a slot at most, and without `context` its share of the total; 0: none
  bool continuous_batching = true;    // prompts are computed while other slots generate
  bool cache_idle_slots = true;       // idle slots go to the prompt cache when a request starts
  bool context_shift = false;
  std::filesystem::path slot_save_path;  // empty: slot files are off
  bool warmup = true;
  bool slot_texts = false;  // whether slot snapshots have the prompt and the text of the last task
  // Models with a window: checkpoints of a slot (0: none), and tokens between two of them (docs/prompt-cache.md, 3.4).
  // With `swa_full` window layers keep as many cells as the others, and there are no checkpoints.
  bool swa_full = false;
  int checkpoints = 32;
  std::int64_t checkpoint_min_step = 8192;
  // Bytes that are free on a device with memory of its own, asked at the start for the memory plan; empty, or unset:
  // nobody can say.
  std::function<std::optional<std::uint64_t>()> device_free_bytes;
  std::function<void()>
      heartbeat;  // called on the engine thread, about once a second while it is idle and after each forward pass
};

struct EchoedSettings;  // of the server

struct CompletionParams {
  SamplingParams sampling;
  int n_predict = -1;  // -1: no limit of its own
  bool cache_prompt = true;
  int id_slot = -1;
  int n_keep = 0, n_discard = 0, n_indent = 0;
  int n_cache_reuse = 0;
  std::int64_t t_max_predict_ms = -1;
  std::vector<std::string> stop;
  int n_probs = 0;
  bool post_sampling_probs = false;
  bool keep_probabilities = true;  // for Done; a stream has them piece by piece
  bool return_progress = false;
  bool timings_per_token = false;
  bool special = false;                          // show control tokens in the text
  bool is_infill = false;                        // infill never touches the prompt cache, and makes no checkpoints
  std::shared_ptr<const EchoedSettings> echoed;  // not read by the engine: for those who list the slots
  std::vector<std::int32_t>
      user_messages;  // tokens of the prompt at which a message of the user starts, ascending: checkpoints
};

// Why tokens of a prompt were computed although the conversation may have been here before.
struct PromptReuse {
  enum class From { nothing, slot, ram };  // where the state was that the prompt was compared with
  From from = From::nothing;
  int differs_at =
      -1;  // the first position at which they differ; -1: the state had all of the prompt, or there was none
  bool lost_to_limit =
      false;  // a limit of the prompt cache has lately dropped a conversation that had more of the prompt
};

struct Timings {
  int cache_n = 0, prompt_n = 0, predicted_n = 0;
  double prompt_ms = 0, predicted_ms = 0;
  PromptReuse reuse = {};
  JobId task = 0;  // by which listings of slots and of the prompt cache name the conversation afterwards
};

struct Progress {
  int total = 0, cache = 0, processed = 0;
  double time_ms = 0;
};

struct TokenProbability {
  TokenId id = 0;
  std::string bytes;  // the piece; may be part of a character
  float p = 0;        // natural log of the probability, or the probability with post_sampling_probs
  std::vector<TokenProbability> top;
};

enum class StopType { none, eos, limit, word };

// --- what a sink receives ---
struct Started {  // the slot starts on the prompt: headers of a stream may go out
  int id_slot = 0;
  Timings timings;
  std::optional<Progress> progress;  // with return_progress: processed == cache
};
struct PromptProgress {  // with return_progress, after each step of the prompt
  Progress progress;
  Timings timings;
};
struct Piece {  // one token whose text is complete (it may be empty: held back, or a control token)
  std::string text;
  TokenId token = 0;
  std::optional<TokenProbability> probability;
  Timings timings;  // so far
  bool ends_with_stop_word = false;
};
struct Done {
  int id_slot = 0;
  std::string text;             // all of it, stop word cut off; an unfinished character at the end is kept as bytes
  std::vector<TokenId> tokens;  // all sampled ones
  std::vector<TokenProbability> probabilities;  // with n_probs: one per emitted token
  StopType stop = StopType::none;
  std::string stopping_word;
  bool truncated = false, has_new_line = false;
  int prompt_tokens = 0;  // N, cached ones included
  int slot_tokens = 0;    // tokens the slot holds now
  Timings timings;
};
struct Failed {
  ErrorKind kind = ErrorKind::internal;
  std::string message;
  int prompt_tokens = 0, context = 0;  // with context_overflow
  bool cancelled = false;
};
using JobEvent = std::variant<Started, PromptProgress, Piece, Done, Failed>;
using JobSink = std::function<void(JobEvent&&)>;

// A prompt and the answers wanted to it: one for each of `params` and `sinks`, of which there are equally many, from 1
// to the number of slots.
struct Submission {
  std::vector<TokenId> prompt;
  std::vector<std::shared_ptr<const CompletionParams>> params;
  std::vector<JobSink> sinks;
};

struct SlotActionResult {
  int tokens = 0;           // saved, restored or erased
  std::uint64_t bytes = 0;  // of the file
  double ms = 0;
};
using SlotActionDone = std::function<void(std::variant<SlotActionResult, Failed>&&)>;  // called on the engine thread

// What a slot's last task was asked and has said so far.
struct SlotTexts {
  std::vector<TokenId> prompt;
  std::string generated;
};

struct SlotSnapshot {
  int id = 0;
  std::int64_t context = 0;
  bool processing = false;
  bool had_task = false;
  JobId task = 0;
  int tokens = 0, processed = 0, cached = 0;  // in the slot now; prompt tokens computed and reused by the task
  bool has_next_token = false, has_new_line = false;
  int n_remain = -1, n_decoded = 0;
  std::uint64_t checkpoints = 0, checkpoint_bytes = 0;
  std::shared_ptr<const CompletionParams> params;
  std::shared_ptr<const SlotTexts> texts;  // with EngineOptions::slot_texts
};

// A conversation in the prompt cache.
struct CachedConversation {
  std::uint64_t tokens = 0, bytes = 0;
  std::chrono::steady_clock::time_point saved;
  int hits = 0;    // how often it has been brought back to a slot
  JobId task = 0;  // the last one that worked on it
};

struct EngineMetrics {
  std::uint64_t prompt_tokens = 0, prompt_tokens_cached = 0, predicted_tokens = 0,
                decode_steps = 0;  // a step is one batch, in one or more forward passes
  double prompt_seconds = 0, predicted_seconds = 0;
  std::uint64_t generation_steps = 0;  // tokens that took a forward pass of their own
  std::uint64_t longest_sequence = 0;
  std::uint64_t busy_slot_steps = 0;  // sum over steps of busy slots
  int requests_processing = 0, requests_deferred = 0;
  // The prompt cache.
  std::uint64_t cache_entries = 0, cache_tokens = 0, cache_bytes = 0, cache_limit_bytes = 0;
  std::uint64_t cache_hits = 0, cache_misses = 0, cache_saves = 0;
  std::uint64_t evicted_for_bytes = 0, evicted_for_tokens = 0, dropped_obsolete = 0, refused_too_large = 0;
  std::uint64_t evicted_for_memory = 0, refused_no_memory = 0, dropped_broken = 0;
  // Of the copies, where the device has memory of its own; elsewhere of the engine.
  double save_seconds = 0, load_seconds = 0;
  std::uint64_t saved_bytes = 0, loaded_bytes = 0;          // by which conversations moved, as they are counted
  std::uint64_t reused_from_slot = 0, reused_from_ram = 0;  // prompt tokens, by where they were
  std::uint64_t lost_to_limits = 0;                         // prompts that a limit has cost tokens
  std::uint64_t copied_to_host = 0, copied_to_device = 0;   // bytes, where the device has memory of its own
  std::uint64_t failed_copies = 0;
  std::uint64_t copy_waits = 0;  // of the engine for copies
  double copy_wait_seconds = 0;
  std::uint64_t pinned_bytes = 0, pageable_bytes = 0,
                host_bytes_used = 0;  // host memory taken for saved states, and the part in use
  std::uint64_t kv_bytes_reserved = 0, kv_blocks_in_use = 0;
  // Checkpoints of window models. Those of the prompt cache are part of cache_bytes.
  std::uint64_t slot_checkpoints = 0, slot_checkpoint_bytes = 0;
  std::uint64_t cache_checkpoints = 0, cache_checkpoint_bytes = 0;
  std::uint64_t checkpoints_made = 0, checkpoints_restored = 0;
};

class Engine {
 public:
  // `model` and `tokenizer` outlive the engine. Starts the thread. Throws Error for options that can't be served.
  Engine(const Model& model, const Tokenizer& tokenizer, const EngineOptions& options);
  ~Engine();  // stop()

  // Queues a completion. A refusal comes through the sink as Failed.
  JobId submit(std::vector<TokenId> prompt, std::shared_ptr<const CompletionParams> params, JobSink sink);
  // Queues the prompts of one request in one go, so that those which find a slot start in the same step. Several
  // answers to one prompt start together, once so many slots are idle; the prompt is computed once, and all but the
  // first give their slot back empty. One that is cancelled before the prompt is done takes those with it that wait for
  // it. Gives the ids of all answers, in order.
  std::vector<JobId> submit(std::vector<Submission> submissions);
  // Ends a job soon: queued ones at once, a running completion after the current forward pass. Unknown or ended ids are
  // ignored.
  void cancel(JobId id);

  // Slot actions join the queue like completions. `file_name` is checked; `slot` wraps modulo the slot count.
  JobId save_slot(std::int64_t slot, std::string file_name, SlotActionDone done);
  JobId restore_slot(std::int64_t slot, std::string file_name, SlotActionDone done);
  JobId erase_slot(std::int64_t slot, SlotActionDone done);

  // Snapshots; never wait for the engine's work.
  std::vector<SlotSnapshot> slots() const;
  EngineMetrics metrics() const;
  std::vector<CachedConversation> cached_conversations() const;  // oldest first

  std::int64_t slot_context() const noexcept;  // tokens that one slot can hold
  int slot_count() const noexcept;
  const EngineOptions& options() const noexcept;

  // Fails all jobs and ends the thread. Idempotent.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bankml
