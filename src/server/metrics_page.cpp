#include "server/metrics_page.hpp"

#include <prometheus/text_serializer.h>
#include <sys/resource.h>

#include <sstream>
#include <utility>
#include <vector>

namespace bankml {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

class Page {
 public:
  struct Labelled {
    const char* label;
    double value;
  };

  // llama-server's names and types.
  template <class Number>
  void peer_counter(const char* name, const char* help, Number value) {
    add(std::string("llamacpp:") + name, help, MetricType::Counter).counter.value = static_cast<double>(value);
  }
  template <class Number>
  void peer_gauge(const char* name, const char* help, Number value) {
    add(std::string("llamacpp:") + name, help, MetricType::Gauge).gauge.value = static_cast<double>(value);
  }
  template <class Number>
  void counter(const char* name, const char* help, Number value) {
    add(std::string("bankmld_") + name, help, MetricType::Counter).counter.value = static_cast<double>(value);
  }
  template <class Number>
  void gauge(const char* name, const char* help, Number value) {
    add(std::string("bankmld_") + name, help, MetricType::Gauge).gauge.value = static_cast<double>(value);
  }
  void counters(const char* name, const char* help, const char* label, std::initializer_list<Labelled> values) {
    MetricFamily& family = families_.emplace_back();
    family = {std::string("bankmld_") + name, help, MetricType::Counter, {}};
    for (const Labelled& value : values) {
      ClientMetric& metric = family.metric.emplace_back();
      metric.label.push_back({label, value.label});
      metric.counter.value = value.value;
    }
  }
  void append(std::vector<MetricFamily> families) {
    for (MetricFamily& family : families) families_.push_back(std::move(family));
  }
  std::string text() const {
    std::ostringstream out;
    prometheus::TextSerializer().Serialize(out, families_);
    return std::move(out).str();
  }

 private:
  ClientMetric& add(std::string name, const char* help, MetricType type) {
    MetricFamily& family = families_.emplace_back();
    family = {std::move(name), help, type, {}};
    return family.metric.emplace_back();
  }

  std::vector<MetricFamily> families_;
};

double rate(double count, double seconds) noexcept {
  return seconds > 0 ? count / seconds : 0.0;
}

void add_engine(Page& page, const EngineMetrics& now, double prompt_rate, double predicted_rate) {
  page.peer_counter("prompt_tokens_total", "Prompt tokens computed, without those from the cache", now.prompt_tokens);
  page.peer_counter("prompt_tokens_cached_total", "Prompt tokens taken from the cache", now.prompt_tokens_cached);
  page.peer_counter("prompt_seconds_total", "Time spent on prompts", now.prompt_seconds);
  page.peer_counter("tokens_predicted_total", "Generated tokens", now.predicted_tokens);
  page.peer_counter("tokens_predicted_seconds_total", "Time spent generating", now.predicted_seconds);
  page.peer_counter("n_decode_total", "Forward passes", now.decode_steps);
  page.peer_counter("n_tokens_max", "Longest sequence seen, in tokens", now.longest_sequence);
  page.peer_counter("spec_decode_num_draft_tokens_total", "Drafted tokens of speculative decoding", 0);
  page.peer_counter("spec_decode_num_accepted_tokens_total", "Accepted tokens of speculative decoding", 0);
  page.peer_counter("spec_decode_num_drafts_total", "Drafts of speculative decoding", 0);
  page.peer_gauge("prompt_tokens_seconds", "Prompt tokens per second since the last reading", prompt_rate);
  page.peer_gauge("predicted_tokens_seconds", "Generated tokens per second since the last reading", predicted_rate);
  page.peer_gauge("requests_processing", "Busy slots", now.requests_processing);
  page.peer_gauge("requests_deferred", "Requests that wait for a slot", now.requests_deferred);
  page.peer_gauge("n_busy_slots_per_decode", "Busy slots per forward pass, on average",
                  rate(static_cast<double>(now.busy_slot_steps), static_cast<double>(now.decode_steps)));
}

void add_prompt_cache(Page& page, const EngineMetrics& now) {
  page.gauge("prompt_cache_entries", "Conversations held in the prompt cache", now.cache_entries);
  page.gauge("prompt_cache_tokens", "Tokens held in the prompt cache", now.cache_tokens);
  page.gauge("prompt_cache_bytes", "Bytes counted for the prompt cache", now.cache_bytes);
  page.gauge("prompt_cache_limit_bytes", "Bytes the prompt cache may hold, 0 without a limit", now.cache_limit_bytes);
  page.counter("prompt_cache_hits_total", "Conversations brought back from the prompt cache", now.cache_hits);
  page.counter("prompt_cache_misses_total", "Searches of the prompt cache that found nothing better", now.cache_misses);
  page.counter("prompt_cache_saves_total", "Conversations stored in the prompt cache", now.cache_saves);
  page.counters("prompt_cache_evictions_total", "Conversations that were not kept, by the reason", "reason",
                {{"bytes", static_cast<double>(now.evicted_for_bytes)},
                 {"tokens", static_cast<double>(now.evicted_for_tokens)},
                 {"contained", static_cast<double>(now.dropped_obsolete)},
                 {"too_large", static_cast<double>(now.refused_too_large)},
                 {"memory", static_cast<double>(now.evicted_for_memory + now.refused_no_memory)},
                 {"failed", static_cast<double>(now.dropped_broken)}});
  page.counter("prompt_cache_save_seconds_total", "Time spent storing conversations", now.save_seconds);
  page.counter("prompt_cache_load_seconds_total", "Time spent bringing conversations back", now.load_seconds);
  page.counter("prompt_cache_saved_bytes_total", "Bytes counted for stored conversations", now.saved_bytes);
  page.counter("prompt_cache_loaded_bytes_total", "Bytes counted for conversations brought back", now.loaded_bytes);
  page.counters(
      "prompt_tokens_reused_total", "Prompt tokens that were not computed again, by where they were", "from",
      {{"slot", static_cast<double>(now.reused_from_slot)}, {"ram", static_cast<double>(now.reused_from_ram)}});
  page.counter("prompts_lost_to_limits_total", "Prompts of which a limit of the cache has cost tokens",
               now.lost_to_limits);
  page.counter("prompt_cache_copied_to_host_bytes_total", "Bytes copied from the device to host memory",
               now.copied_to_host);
  page.counter("prompt_cache_copied_to_device_bytes_total", "Bytes copied from host memory to the device",
               now.copied_to_device);
  page.counter("prompt_cache_failed_copies_total", "Copies between host memory and the device that failed",
               now.failed_copies);
  page.counter("prompt_cache_waits_total", "Waits of the engine for copies, as memory was short or pageable",
               now.copy_waits);
  page.counter("prompt_cache_wait_seconds_total", "Time of these waits", now.copy_wait_seconds);
  page.gauge("prompt_cache_pinned_bytes", "Pinned host memory taken for saved states", now.pinned_bytes);
  page.gauge("prompt_cache_pageable_bytes", "Host memory taken for saved states that could not be pinned",
             now.pageable_bytes);
  page.gauge("prompt_cache_host_used_bytes", "Part of both that saved states use", now.host_bytes_used);
  page.gauge("kv_reserved_bytes", "Memory reserved for keys and values", now.kv_bytes_reserved);
  page.gauge("kv_blocks", "Blocks of keys and values in use", now.kv_blocks_in_use);
}

double peak_resident_bytes() {
  constexpr double kKiB = 1024;
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * kKiB;
}

void add_checkpoints(Page& page, const EngineMetrics& now) {
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
  add_engine(page, now, prompt_rate, predicted_rate);
  add_prompt_cache(page, now);
  add_checkpoints(page, now);
  page.append(requests_.collect());
  page.gauge("connections", "Open client connections", gauges_.connections());
  page.counter("connections_refused_total", "Connections beyond the limits", gauges_.refused_connections());
  page.gauge("resident_memory_peak_bytes", "Largest resident memory of the process so far", peak_resident_bytes());
  return page.text();
}

}  // namespace bankml
