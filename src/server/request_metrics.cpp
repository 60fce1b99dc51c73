#include "server/request_metrics.hpp"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>

#include <string>

namespace bankml {
namespace {

using Bounds = prometheus::Histogram::BucketBoundaries;

// Upper bounds of buckets, in a ratio of about 2.
const Bounds kSeconds = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300};
const Bounds kTokens = {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072};

prometheus::Histogram* add(prometheus::Registry& registry, const std::string& name, const std::string& help,
                           const Bounds& bounds) {
  return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, bounds);
}

}  // namespace

RequestMetrics::RequestMetrics()
    : queue_wait_(add(registry_, "bankmld_queue_wait_seconds", "From a request's arrival to its slot", kSeconds)),
      first_token_(add(registry_, "bankmld_time_to_first_token_seconds", "From a request's arrival to its first token",
                       kSeconds)),
      next_token_(add(registry_, "bankmld_time_between_tokens_seconds", "From a token to the next one", kSeconds)),
      prefilled_(add(registry_, "bankmld_request_prefill_tokens", "Prompt tokens computed for a request", kTokens)),
      generated_(add(registry_, "bankmld_request_decode_tokens", "Tokens generated for a request", kTokens)) {
  auto& ends = prometheus::BuildCounter()
                   .Name("bankmld_requests_total")
                   .Help("Generations that have ended, by how they did")
                   .Register(registry_);
  for (const char* outcome : {"done", "failed", "cancelled", "refused"}) {
    outcomes_.push_back(&ends.Add({{"outcome", outcome}}));
  }
}

void RequestMetrics::observe_queue_wait(double seconds) {
  queue_wait_->Observe(seconds);
}
void RequestMetrics::observe_first_token(double seconds) {
  first_token_->Observe(seconds);
}
void RequestMetrics::observe_next_token(double seconds) {
  next_token_->Observe(seconds);
}
void RequestMetrics::observe_end(Outcome outcome) {
  outcomes_[static_cast<std::size_t>(outcome)]->Increment();
}
void RequestMetrics::observe_tokens(int prefilled, int generated) {
  prefilled_->Observe(prefilled);
  generated_->Observe(generated);
}

}  // namespace bankml
