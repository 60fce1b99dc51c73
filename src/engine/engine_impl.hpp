#pragma once
// The inside of the engine: the queue that other threads fill, and the loop. Everything below `--- engine thread ---`
// belongs to that thread alone.
#include <atomic>
#include <condition_variable>
#include <list>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "bankml/base/log.hpp"
#include "bankml/engine/engine.hpp"
#include "bankml/engine/prompt_cache.hpp"
#include "bankml/engine/slot_choice.hpp"
#include "bankml/model/kv_transport.hpp"
#include "engine/lost_conversations.hpp"
#include "engine/prompt_cut.hpp"
#include "engine/slot.hpp"

namespace bankml {

ErrorKind kind_of(const std::exception& error) noexcept;
Failed failure(const std::exception& error) noexcept;

struct Engine::Impl {
  Impl(const Model& model, const Tokenizer& tokenizer, const EngineOptions& options);

  JobId queue(std::unique_ptr<Job> job);             // which gets an id
  void queue(std::list<std::unique_ptr<Job>> jobs);  // all of them or, if this throws, none
  std::int64_t window_part_cells(std::int64_t stream_cells) const noexcept;
  void make_context(std::int64_t wanted);
  void fit_into_device();
  void make_transport(std::uint64_t limit_bytes);

  const Model& model;
  const Tokenizer& tokenizer;
  EngineOptions options;
  std::int64_t total_context = 0, slot_context = 0;

  // Guarded by `mutex`.
  std::mutex mutex;
  std::condition_variable wake;
  std::list<std::unique_ptr<Job>> arrived;
  std::vector<JobId> cancelled;  // has room, so that a destructor may cancel
  bool stopping = false;
  JobId only_running = 0;          // the running completion while there is exactly one, else 0
  std::atomic<bool> abort{false};  // set where nobody wants the present forward pass any more

  // Guarded by `snapshot_mutex`; written by the engine thread.
  mutable std::mutex snapshot_mutex;
  std::vector<SlotSnapshot> slot_snapshots;
  EngineMetrics metrics_snapshot;
  std::vector<CachedConversation> cached_snapshot;

  std::atomic<JobId> last_id{0};
  std::thread thread;

  // --- engine thread ---
  void warm_up();
  void loop();
  bool take_arrivals(bool wait);
  void beat() const;
  void apply_cancellations(std::span<const JobId> ids);
  void admit();
  bool try_start(std::unique_ptr<Job>& job);
  bool start_or_fail(std::unique_ptr<Job>& job);
  std::vector<Slot*> slots_for_copies(const Slot& chosen, std::size_t copies);
  void start_copies(Slot& first, std::span<Slot* const> chosen, std::vector<std::unique_ptr<Job>> copies);
  void share_prompt(Slot& first);
  void exchange_state(Slot& slot, std::span<const TokenId> prompt);
  bool save_to_cache(Slot& slot);
  void drop_broken_states();
  // The same state with all blocks on the device; its host copies stay where they are.
  template <class State>
  State on_device(const State& state) {
    State copy = state;
    if (!transport) return copy;
    std::vector<KvBlock*> blocks;
    copy.collect_blocks(blocks);
    transport->load(blocks, transformer->stream());
    return copy;
  }
  void save_idle_slots(const Slot& started);
  void save_idle_slot(Slot& slot);
  bool start_completion(Slot& slot, std::unique_ptr<Job>& job);
  std::size_t reuse(Slot& slot, const Run& run);
  PromptReuse explain_reuse(Slot& slot, const Run& run) const;
  void note_reuse(Run& run);
  void note_cache_event(const PromptCacheEvent& event);
  void publish_cache() noexcept;
  std::int64_t roll_back(Slot& slot, std::int64_t n_past, std::int64_t total, std::int64_t first);
  CutPoints cut_points(const Slot& slot) const noexcept;
  void make_checkpoint(Slot& slot, std::int64_t end);
  KvCells checkpoint_state(const Slot& slot);
  bool drop_checkpoint_on_device();
  // Again as long as memory of the device is short and a checkpoint can give way. `work` changes nothing then.
  template <class Work>
  auto with_room(Work&& work) {
    for (;;) {
      try {
        return work();
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::out_of_memory || !drop_checkpoint_on_device()) throw;
      }
    }
  }
  void start_action(Slot& slot, Job& job);
  void step();
  void form_batch();
  bool shift_context(Slot& slot);
  std::int64_t free_cells() const noexcept;
  std::size_t fitting_rows(std::span<const BatchRow> batch);
  bool decode(std::span<BatchRow> batch);
  std::span<BatchRow> still_wanted(std::span<BatchRow> batch) const noexcept;
  bool run_rows(std::span<const BatchRow> batch);
  void keep_logits();
  void hand_out_logits();
  void take_logits(Slot& slot, std::span<const float> logits);
  template <class Work>
  void guard(Slot& slot, Work&& work) noexcept;
  void take_token(Slot& slot, TokenId token, std::span<const float> logits);
  void check_limits(Slot& slot, const std::string& sent);
  static void check_indentation(Run& run);
  static PromptProgress prompt_progress(const Run& run);
  int token_budget(const Run& run) const noexcept;
  std::optional<TokenProbability> probability(const Run& run, TokenId token, std::span<const float> logits) const;
  void finish(Slot& slot);
  void release(Slot& slot);
  void fail(Slot& slot, Failed failed) noexcept;
  void fail_running(ErrorKind kind, std::string_view message) noexcept;
  void fail_youngest(std::span<const BatchRow> batch, std::string_view message) noexcept;
  void read_transport_stats();
  void publish();
  void publish_slot(const Slot& slot);
  static void note_texts(Slot& slot) noexcept;
  std::filesystem::path slot_file(const Job& job) const;
  SlotActionResult save_slot(Slot& slot, const std::filesystem::path& path);
  SlotActionResult restore_slot(Slot& slot, const std::filesystem::path& path);

  std::unique_ptr<KvPool> pool;            // before all that holds blocks of it
  std::unique_ptr<KvTransport> transport;  // none: states are handed over, or the cache is off
  std::vector<Slot> slots;
  std::list<std::unique_ptr<Job>> waiting;  // in order of arrival
  std::vector<JobId> leaving;               // cancellations that are being applied
  std::unique_ptr<Transformer> transformer;
  std::unique_ptr<PromptCache<SlotState>> cache;  // none: switched off
  EngineMetrics metrics;
  std::uint64_t state_fingerprint = 0;
  std::uint64_t failed_saves_seen = 0;  // of the transport: their entries are gone
  LostConversations lost;
  bool cache_changed = false;        // since the last snapshot of it
  bool one_stream = true;            // the peer's slots share one KV stream
  int window = 0;                    // positions that window layers see; 0: none, or all their cells are kept
  bool can_move_positions = true;    // whether chunk reuse and context shift are possible
  std::vector<BatchRow> rows;        // of a step; kept, so that a step doesn't allocate
  std::vector<BatchRow> later_rows;  // scratch of next_pass()
  // Of a decode, by slot; empty: none. They are the transformer's own, or lie in `kept_logits`.
  std::vector<std::span<const float>> logits_of_slot;
  std::vector<std::vector<float>> kept_logits;
  std::vector<KvSequence*> sequences;  // of all slots, by id
  std::vector<SlotView> views;
  std::vector<SlotSnapshot> next_snapshots;  // filled for publish(); kept, so that it doesn't allocate
};

// Work for the request of one slot: what it throws fails that request and no other. Nothing is done for a request that
// has failed before.
template <class Work>
void Engine::Impl::guard(Slot& slot, Work&& work) noexcept {
  if (!slot.run) return;
  try {
    work();
  } catch (const std::exception& error) {
    log_error("slot {}: a request fails: {}", slot.id, error.what());
    if (slot.run) fail(slot, failure(error));
  }
}

}  // namespace bankml
