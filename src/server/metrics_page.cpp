// GET /metrics: Prometheus text, names as in llama-server (docs/http-api.md 6).
#include <fmt/format.h>

#include <iterator>

#include "server/routes.hpp"

namespace bankml {
namespace {

class Page {
 public:
  template <class Number>
  void counter(std::string_view name, std::string_view help, Number value) {
    metric(name, "counter", help, value);
  }
  template <class Number>
  void gauge(std::string_view name, std::string_view help, Number value) {
    metric(name, "gauge", help, value);
  }
  std::string text() && { return std::move(text_); }

 private:
  template <class Number>
  void metric(std::string_view name, std::string_view type, std::string_view help, Number value) {
    fmt::format_to(std::back_inserter(text_), "# HELP llamacpp:{0} {1}\n# TYPE llamacpp:{0} {2}\nllamacpp:{0} {3}\n",
                   name, help, type, value);
  }
  std::string text_;
};

double rate(double count, double seconds) noexcept {
  return seconds > 0 ? count / seconds : 0.0;
}

void append_prompt_cache(Page& page, const EngineMetrics& now) {
  page.gauge("prompt_cache_entries", "Conversations held in the prompt cache", now.cache_entries);
  page.gauge("prompt_cache_tokens", "Tokens held in the prompt cache", now.cache_tokens);
  page.gauge("prompt_cache_bytes", "Bytes counted for the prompt cache", now.cache_bytes);
  page.gauge("prompt_cache_limit_bytes", "Bytes the prompt cache may hold, 0 without a limit", now.cache_limit_bytes);
  page.counter("prompt_cache_hits_total", "Conversations brought back from the prompt cache", now.cache_hits);
  page.counter("prompt_cache_misses_total", "Searches of the prompt cache that found nothing better", now.cache_misses);
  page.counter("prompt_cache_saves_total", "Conversations stored in the prompt cache", now.cache_saves);
  page.counter("prompt_cache_evicted_bytes_total", "Entries removed because of the byte limit", now.evicted_for_bytes);
  page.counter("prompt_cache_evicted_tokens_total", "Entries removed because of the token limit",
               now.evicted_for_tokens);
  page.counter("prompt_cache_obsolete_total", "Entries removed because a longer one contains them",
               now.dropped_obsolete);
  page.counter("prompt_cache_refused_total", "Conversations too large to be stored", now.refused_too_large);
  page.counter("prompt_cache_save_seconds_total", "Time spent storing conversations", now.save_seconds);
  page.counter("prompt_cache_load_seconds_total", "Time spent bringing conversations back", now.load_seconds);
  page.gauge("kv_bytes_reserved", "Memory reserved for keys and values", now.kv_bytes_reserved);
  page.gauge("kv_blocks_in_use", "Blocks of keys and values in use", now.kv_blocks_in_use);
}

void append_checkpoints(Page& page, const EngineMetrics& now) {
  page.gauge("slot_checkpoints", "Checkpoints of window models, in slots", now.slot_checkpoints);
  page.gauge("slot_checkpoint_bytes", "Bytes counted for them", now.slot_checkpoint_bytes);
  page.gauge("prompt_cache_checkpoints", "Checkpoints in the prompt cache", now.cache_checkpoints);
  page.gauge("prompt_cache_checkpoint_bytes", "Bytes counted for them, part of prompt_cache_bytes",
             now.cache_checkpoint_bytes);
  page.counter("checkpoints_made_total", "Checkpoints made", now.checkpoints_made);
  page.counter("checkpoints_restored_total", "Checkpoints that a slot went back to", now.checkpoints_restored);
}

}  // namespace

std::string MetricsPage::render(const EngineMetrics& now) {
  double prompt_rate = 0, predicted_rate = 0;
  {
    const std::lock_guard lock(mutex_);
    prompt_rate = rate(static_cast<double>(now.prompt_tokens - previous_.prompt_tokens),
                       now.prompt_seconds - previous_.prompt_seconds);
    predicted_rate = rate(static_cast<double>(now.generation_steps - previous_.generation_steps),
                          now.predicted_seconds - previous_.predicted_seconds);
    previous_ = now;
  }
  Page page;
  page.counter("prompt_tokens_total", "Prompt tokens computed, without those from the cache", now.prompt_tokens);
  page.counter("prompt_tokens_cached_total", "Prompt tokens taken from the cache", now.prompt_tokens_cached);
  page.counter("prompt_seconds_total", "Time spent on prompts", now.prompt_seconds);
  page.counter("tokens_predicted_total", "Generated tokens", now.predicted_tokens);
  page.counter("tokens_predicted_seconds_total", "Time spent generating", now.predicted_seconds);
  page.counter("n_decode_total", "Forward passes", now.decode_steps);
  page.counter("n_tokens_max", "Longest sequence seen, in tokens", now.longest_sequence);
  page.counter("spec_decode_num_draft_tokens_total", "Drafted tokens of speculative decoding", 0);
  page.counter("spec_decode_num_accepted_tokens_total", "Accepted tokens of speculative decoding", 0);
  page.counter("spec_decode_num_drafts_total", "Drafts of speculative decoding", 0);
  page.gauge("prompt_tokens_seconds", "Prompt tokens per second since the last reading", prompt_rate);
  page.gauge("predicted_tokens_seconds", "Generated tokens per second since the last reading", predicted_rate);
  page.gauge("requests_processing", "Busy slots", now.requests_processing);
  page.gauge("requests_deferred", "Requests that wait for a slot", now.requests_deferred);
  page.gauge("n_busy_slots_per_decode", "Busy slots per forward pass, on average",
             rate(static_cast<double>(now.busy_slot_steps), static_cast<double>(now.decode_steps)));
  append_prompt_cache(page, now);
  append_checkpoints(page, now);
  return std::move(page).text();
}

}  // namespace bankml
