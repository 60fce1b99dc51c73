#pragma once
// What is measured on every generation, as histograms and counters of its course. Any thread.
#include <prometheus/registry.h>

#include <vector>

namespace prometheus {
class Counter;
class Histogram;
}  // namespace prometheus

namespace bankml {

class RequestMetrics {
 public:
  enum class Outcome { done, failed, cancelled, refused };

  RequestMetrics();

  void observe_queue_wait(double seconds);
  void observe_first_token(double seconds);  // since the request came
  void observe_next_token(double seconds);   // since the one before
  void observe_end(Outcome outcome);
  void observe_tokens(int prefilled, int generated);

  std::vector<prometheus::MetricFamily> collect() const { return registry_.Collect(); }

 private:
  prometheus::Registry registry_;
  prometheus::Histogram *queue_wait_, *first_token_, *next_token_, *prefilled_, *generated_;
  std::vector<prometheus::Counter*> outcomes_;  // by Outcome
};

}  // namespace bankml
