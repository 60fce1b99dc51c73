#include "bankml/server/completion_service.hpp"

#include <utility>

namespace bankml {
namespace {

class EngineService final : public CompletionService {
 public:
  explicit EngineService(Engine& engine) : engine_(engine) {}

  std::vector<JobId> submit(std::vector<Submission> submissions) override {
    return engine_.submit(std::move(submissions));
  }
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
  bool has_slot_files() const noexcept override { return !engine_.options().slot_save_path.empty(); }

 private:
  Engine& engine_;
};

}  // namespace

std::unique_ptr<CompletionService> make_completion_service(Engine& engine) {
  return std::make_unique<EngineService>(engine);
}

}  // namespace bankml
