#include "bankml/engine/engine.hpp"

#include <algorithm>

#include "bankml/base/log.hpp"
#include "engine/engine_impl.hpp"
#include "engine/memory_limit.hpp"

namespace bankml {

ErrorKind kind_of(const std::exception& error) noexcept {
  if (const auto* own = dynamic_cast<const Error*>(&error)) return own->kind();
  return dynamic_cast<const std::bad_alloc*>(&error) ? ErrorKind::out_of_memory : ErrorKind::internal;
}

Failed failure(const std::exception& error) noexcept {
  const bool lacks_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  return failure(kind_of(error), lacks_memory ? "out of memory" : error.what());
}

namespace {

constexpr auto kHeartbeatPause = std::chrono::seconds(1);
constexpr auto kCopyPause = std::chrono::milliseconds(2);  // while states are being copied
constexpr std::int64_t kContextUnit = 256;                 // contexts are rounded up to this many tokens

std::int64_t round_up(std::int64_t n, std::int64_t unit) noexcept {
  return (n + unit - 1) / unit * unit;
}

constexpr std::size_t kCancellations = 256;  // that are noted without taking memory

Failed stopped() {
  Failed failed = failure(ErrorKind::busy, "the server is shutting down");
  failed.cancelled = true;
  return failed;
}

}  // namespace

// Cells of a window layer in one KV stream (docs/prompt-cache.md, 3.4).
std::int64_t Engine::Impl::window_part_cells(std::int64_t stream_cells) const noexcept {
  if (options.swa_full) return stream_cells;
  int most = 0;
  for (const LayerConfig& layer : model.config().layer) most = std::max(most, layer.window);
  const std::int64_t sharing = options.unified_kv ? options.slots : 1;
  return round_up(std::min(stream_cells, most * sharing + options.ubatch), kContextUnit);
}

// Context sizes: docs/prompt-cache.md, section 7; batches: section 4.
Engine::Impl::Impl(const Model& m, const Tokenizer& t, const EngineOptions& o) : model(m), tokenizer(t), options(o) {
  if (options.slots < 1) {
    throw Error(ErrorKind::invalid_request, fmt::format("at least 1 slot is needed, not {}", options.slots));
  }
  const std::int64_t training = model.config().context;
  const std::int64_t of_a_slot = options.context_per_slot > 0 ? options.context_per_slot : training;
  const std::int64_t wanted = options.context > 0 ? options.context : of_a_slot * options.slots;
  if (wanted > training * options.slots) {
    log_warning("the context of {} tokens is larger than the model was trained with: a slot gets at most {}", wanted,
                training);
  }
  make_context(wanted);
  fit_into_device();
  slots.resize(static_cast<std::size_t>(options.slots));
  for (std::size_t i = 0; i < slots.size(); ++i) {
    slots[i].id = static_cast<int>(i);
    sequences.push_back(&slots[i].kv);
  }
  rows.reserve(static_cast<std::size_t>(options.batch));
  views.reserve(slots.size());
  next_snapshots.reserve(slots.size());
  slot_snapshots.reserve(slots.size());
  cancelled.reserve(kCancellations);
  leaving.reserve(kCancellations);

  const std::int64_t mib = options.cache_ram_mib.value_or(default_cache_limit_mib(available_memory()));
  options.cache_ram_mib = mib;
  if (mib != 0) {
    const std::uint64_t limit = mib < 0 ? 0 : static_cast<std::uint64_t>(mib) << 20;
    make_transport(limit);
    cache =
        std::make_unique<PromptCache<SlotState>>(limit, static_cast<std::uint64_t>(total_context),
                                                 [this](const PromptCacheEvent& event) { note_cache_event(event); });
    metrics.cache_limit_bytes = limit;
  }
  if (cache && options.cache_idle_slots) {
    log_debug("idle slots are saved to the prompt cache __TEST_TAG_CACHE_IDLE_SLOTS_ENABLED__");
  }
  publish();
}

// The KV pool and the transformer for so many tokens in all.
void Engine::Impl::make_context(std::int64_t wanted) {
  const std::int64_t training = model.config().context;
  const bool shared = options.unified_kv || options.slots == 1;
  const std::int64_t per_slot =
      shared ? round_up(wanted, kContextUnit) : round_up(wanted / options.slots, kContextUnit);
  total_context = shared ? per_slot : per_slot * options.slots;
  slot_context = std::min({per_slot, training, options.context_per_slot > 0 ? options.context_per_slot : training});
  options.batch = static_cast<int>(std::min<std::int64_t>(std::max(options.batch, 1), wanted));
  options.ubatch = options.ubatch > 0 ? std::min(options.batch, options.ubatch) : options.batch;

  one_stream = shared;
  const std::int64_t window_cells = model.config().windowed() ? window_part_cells(per_slot) : 0;
  transformer.reset();
  pool = std::make_unique<KvPool>(model.device(), model.config(), options.cache_type_k, options.cache_type_v, 0,
                                  window_cells);
  window = options.swa_full ? 0 : pool->window();
  can_move_positions = window_cells == 0 || window_cells == per_slot;
  if (options.context_shift && !can_move_positions) {
    log_warning("the context shift is off: layers with a window of {} tokens keep {} of them", pool->window(),
                window_cells);
    options.context_shift = false;
  }
  TransformerLimits limits;
  limits.max_rows = options.ubatch;
  limits.max_logit_rows = options.slots;
  limits.max_sequences = options.slots;
  limits.context = per_slot;
  try {
    transformer = std::make_unique<Transformer>(model, *pool, limits);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::out_of_memory) throw;
    throw Error(ErrorKind::out_of_memory,
                fmt::format("scratch memory for batches of {} rows has no room beside the weights (-ub takes less): {}",
                            options.ubatch, error.what()));
  }
}

Engine::Engine(const Model& model, const Tokenizer& tokenizer, const EngineOptions& options)
    : impl_(std::make_unique<Impl>(model, tokenizer, options)) {
  if (options.warmup) impl_->warm_up();
  impl_->thread = std::thread([impl = impl_.get()] { impl->loop(); });
}

Engine::~Engine() {
  stop();
}

void Engine::stop() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stopping = true;
    impl_->abort = true;
  }
  impl_->wake.notify_all();
  if (impl_->thread.joinable()) impl_->thread.join();
}

void Engine::Impl::queue(std::list<std::unique_ptr<Job>> jobs) {
  {
    const std::lock_guard lock(mutex);
    if (!stopping) arrived.splice(arrived.end(), jobs);
  }
  for (auto& job : jobs) job->fail(stopped());
  wake.notify_one();
}

JobId Engine::Impl::queue(std::unique_ptr<Job> job) {
  const JobId id = job->id = ++last_id;
  std::list<std::unique_ptr<Job>> jobs;
  jobs.push_back(std::move(job));
  queue(std::move(jobs));
  return id;
}

namespace {

std::unique_ptr<Job> completion(JobId id, std::shared_ptr<const CompletionParams> params, JobSink sink) {
  auto job = std::make_unique<Job>();
  job->id = id;
  job->params = std::move(params);
  job->sink = std::move(sink);
  return job;
}

}  // namespace

JobId Engine::submit(std::vector<TokenId> prompt, std::shared_ptr<const CompletionParams> params, JobSink sink) {
  std::vector<Submission> one(1);
  one[0].prompt = std::move(prompt);
  one[0].params.push_back(std::move(params));
  one[0].sinks.push_back(std::move(sink));
  return submit(std::move(one)).front();
}

std::vector<JobId> Engine::submit(std::vector<Submission> submissions) {
  std::vector<JobId> ids;
  std::list<std::unique_ptr<Job>> jobs;
  for (Submission& submission : submissions) {
    for (std::size_t i = 0; i < submission.params.size(); ++i) {
      ids.push_back(++impl_->last_id);
      auto job = completion(ids.back(), std::move(submission.params[i]), std::move(submission.sinks[i]));
      if (i > 0) {
        jobs.back()->copies.push_back(std::move(job));
      } else {
        job->prompt = std::move(submission.prompt);
        jobs.push_back(std::move(job));
      }
    }
  }
  impl_->queue(std::move(jobs));
  return ids;
}

// Destructors call this: where there is no memory to note a cancellation, the job just runs to its end.
void Engine::cancel(JobId id) {
  try {
    const std::lock_guard lock(impl_->mutex);
    impl_->cancelled.push_back(id);
    if (id == impl_->only_running) impl_->abort = true;
  } catch (const std::exception& error) {
    log_warning("task {} can't be cancelled: {}", id, error.what());
  }
  impl_->wake.notify_one();
}

namespace {

std::unique_ptr<Job> slot_action(Job::Kind kind, std::int64_t slot, std::string file_name, SlotActionDone done) {
  auto job = std::make_unique<Job>();
  job->kind = kind;
  job->slot = slot;
  job->file_name = std::move(file_name);
  job->done = std::move(done);
  return job;
}

}  // namespace

JobId Engine::save_slot(std::int64_t slot, std::string file_name, SlotActionDone done) {
  return impl_->queue(slot_action(Job::Kind::save, slot, std::move(file_name), std::move(done)));
}
JobId Engine::restore_slot(std::int64_t slot, std::string file_name, SlotActionDone done) {
  return impl_->queue(slot_action(Job::Kind::restore, slot, std::move(file_name), std::move(done)));
}
JobId Engine::erase_slot(std::int64_t slot, SlotActionDone done) {
  return impl_->queue(slot_action(Job::Kind::erase, slot, {}, std::move(done)));
}

std::vector<SlotSnapshot> Engine::slots() const {
  const std::lock_guard lock(impl_->snapshot_mutex);
  return impl_->slot_snapshots;
}

std::vector<CachedConversation> Engine::cached_conversations() const {
  const std::lock_guard lock(impl_->snapshot_mutex);
  return impl_->cached_snapshot;
}

EngineMetrics Engine::metrics() const {
  const std::lock_guard lock(impl_->snapshot_mutex);
  return impl_->metrics_snapshot;
}

std::int64_t Engine::slot_context() const noexcept {
  return impl_->slot_context;
}
int Engine::slot_count() const noexcept {
  return impl_->options.slots;
}
const EngineOptions& Engine::options() const noexcept {
  return impl_->options;
}

// One empty pass, so that the first request finds the weights in memory.
void Engine::Impl::warm_up() {
  KvSequence sequence;
  KvSequence* const one[] = {&sequence};
  const BatchRow row{tokenizer.bos().value_or(0), 0, 0, true};
  transformer->forward({&row, 1}, one);  // nothing can abort it yet
}

void Engine::Impl::loop() {
  for (;;) {
    const bool busy = std::any_of(slots.begin(), slots.end(), [](const Slot& slot) { return slot.run != nullptr; });
    // A job that waits while all slots are idle was deferred by the one that has just ended.
    if (!take_arrivals(!busy && waiting.empty())) break;
    if (!waiting.empty()) {
      admit();
      publish();  // the slot is seen busy from its first step on
    }
    try {
      step();
    } catch (const std::exception& error) {
      fail_running(kind_of(error), error.what());  // what was being computed is in doubt; the next request isn't
    }
    publish();
  }
  for (auto& job : waiting) job->fail(stopped());
  waiting.clear();
  for (Slot& slot : slots) {
    if (!slot.run) continue;
    slot.run->job->fail(stopped());
    release(slot);
  }
  publish();
}

// Tells whoever watches that the thread is alive.
void Engine::Impl::beat() const {
  if (options.heartbeat) options.heartbeat();
}

// Moves what other threads have queued to the engine's own lists; false when the engine is to stop. With `wait`, sleeps
// until there is something.
bool Engine::Impl::take_arrivals(bool wait) {
  {
    std::unique_lock lock(mutex);
    const auto woken = [&] { return stopping || !arrived.empty() || !cancelled.empty(); };
    bool copying = transport && transport->busy();
    while (wait && !wake.wait_for(lock, copying ? kCopyPause : kHeartbeatPause, woken)) {
      lock.unlock();
      beat();
      if (copying) {
        transport->poll();
        publish();
      }
      copying = transport && transport->busy();
      lock.lock();
    }
    waiting.splice(waiting.end(), arrived);
    if (stopping) return false;
    leaving.clear();
    leaving.swap(cancelled);
    abort = false;
  }
  if (!leaving.empty()) apply_cancellations(leaving);
  return true;
}

void Engine::Impl::apply_cancellations(std::span<const JobId> ids) {
  const auto failed = [] {
    Failed left = failure(ErrorKind::busy, "cancelled: the client has left");
    left.cancelled = true;
    return left;
  };
  const auto named = [&](const Job& job) { return std::find(ids.begin(), ids.end(), job.id) != ids.end(); };
  for (auto it = waiting.begin(); it != waiting.end();) {
    Job& job = **it;
    if (!named(job)) {
      std::erase_if(job.copies, [&](const std::unique_ptr<Job>& copy) {
        if (named(*copy)) copy->fail(failed());
        return named(*copy);
      });
      ++it;
      continue;
    }
    job.fail(failed());
    it = waiting.erase(it);
  }
  for (Slot& slot : slots) {
    if (!slot.run) continue;
    const bool waits = std::find(ids.begin(), ids.end(), slot.run->waits_for) != ids.end();
    if (!waits && !named(*slot.run->job)) continue;
    slot.run->job->fail(failed());
    release(slot);
  }
}

}  // namespace bankml
