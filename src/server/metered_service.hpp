#pragma once
// The engine as the routes see it: every generation is measured on its way, and the queue is kept within its limit.
#include <atomic>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bankml/server/completion_service.hpp"
#include "server/policy.hpp"
#include "server/request_metrics.hpp"

namespace bankml {

class MeteredService final : public CompletionService {
 public:
  // All outlive the service, which outlives its jobs.
  MeteredService(CompletionService& engine, RequestMetrics& metrics, const PolicyStore& policy)
      : engine_(engine), metrics_(metrics), policy_(policy) {}

  // Throws Error(busy) if as many generations wait as may.
  std::vector<JobId> submit(std::vector<Submission> submissions) override;
  void cancel(JobId id) override { engine_.cancel(id); }

  JobId save_slot(std::int64_t slot, std::string file_name, SlotActionDone done) override {
    return engine_.save_slot(slot, std::move(file_name), std::move(done));
  }
  JobId restore_slot(std::int64_t slot, std::string file_name, SlotActionDone done) override {
    return engine_.restore_slot(slot, std::move(file_name), std::move(done));
  }
  JobId erase_slot(std::int64_t slot, SlotActionDone done) override {
    return engine_.erase_slot(slot, std::move(done));
  }

  std::vector<SlotSnapshot> slots() const override { return engine_.slots(); }
  EngineMetrics metrics() const override { return engine_.metrics(); }
  std::vector<CachedConversation> cached_conversations() const override { return engine_.cached_conversations(); }
  std::int64_t slot_context() const noexcept override { return engine_.slot_context(); }
  int slot_count() const noexcept override { return engine_.slot_count(); }
  bool has_slot_files() const noexcept override { return engine_.has_slot_files(); }

 private:
  class Course;

  JobSink metered(JobSink sink);

  CompletionService& engine_;
  RequestMetrics& metrics_;
  const PolicyStore& policy_;
  std::shared_ptr<std::atomic<int>> waiting_ = std::make_shared<std::atomic<int>>(0);  // generations without a slot yet
};

}  // namespace bankml
