#pragma once
// What the server asks of an engine. An interface of its own, so that routes and sessions are tested without a model.
// The rules of engine.hpp hold: any thread may call, sinks run on the engine's thread, each job ends in one Done or
// Failed.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bankml/engine/engine.hpp"

namespace bankml {

class CompletionService {
 public:
  virtual ~CompletionService() = default;

  // The prompts of one request: Engine::submit().
  virtual std::vector<JobId> submit(std::vector<Submission> submissions) = 0;
  virtual void cancel(JobId id) = 0;  // a completion or a slot action

  virtual JobId save_slot(std::int64_t slot, std::string file_name, SlotActionDone done) = 0;
  virtual JobId restore_slot(std::int64_t slot, std::string file_name, SlotActionDone done) = 0;
  virtual JobId erase_slot(std::int64_t slot, SlotActionDone done) = 0;

  // Snapshots; never wait for the engine's work.
  virtual std::vector<SlotSnapshot> slots() const = 0;
  virtual EngineMetrics metrics() const = 0;
  virtual std::vector<CachedConversation> cached_conversations() const = 0;

  virtual std::int64_t slot_context() const noexcept = 0;
  virtual int slot_count() const noexcept = 0;
  virtual bool has_slot_files() const noexcept = 0;  // whether the slot actions are on
};

// `engine` outlives the result.
std::unique_ptr<CompletionService> make_completion_service(Engine& engine);

}  // namespace bankml
