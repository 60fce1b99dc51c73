#pragma once
// GET /metrics: Prometheus text with llama-server's names (docs/http-api.md 6) and our own (README.md).
#include <functional>
#include <mutex>
#include <string>

#include "bankml/engine/engine.hpp"
#include "server/request_metrics.hpp"

namespace bankml {

// Any thread.
class MetricsPage {
 public:
  struct Gauges {
    std::function<int()> connections = [] { return 0; };
    std::function<std::uint64_t()> refused_connections = [] { return std::uint64_t{0}; };
  };
  MetricsPage() = default;
  explicit MetricsPage(Gauges gauges) : gauges_(std::move(gauges)) {}

  RequestMetrics& requests() noexcept { return requests_; }
  // The throughput gauges show the time since the previous call.
  std::string render(const EngineMetrics& metrics);

 private:
  const Gauges gauges_;
  RequestMetrics requests_;
  std::mutex mutex_;
  EngineMetrics previous_;  // guarded by mutex_
};

}  // namespace bankml
