#pragma once
// An engine that does what the test says: answers at once with a script, or waits until the test sends the events.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bankml/model/gguf.hpp"
#include "bankml/server/server.hpp"
#include "support/gguf_builder.hpp"
#include "support/tiny_model.hpp"

namespace bankml::test {

// The pieces of an answer, and how it ends.
struct Script {
  std::vector<std::string> pieces = {"Hello", " world"};
  StopType stop = StopType::eos;
};

class FakeService final : public CompletionService {
 public:
  struct Job {
    std::vector<TokenId> prompt;
    std::shared_ptr<const CompletionParams> params;
    JobSink sink;
  };

  std::optional<Script> script = Script{};  // none: jobs stay open until the test ends them
  int slot_number = 2;
  bool slot_files = true;
  bool refuses = false;  // submit() throws
  std::vector<SlotSnapshot> snapshots = {{}};
  EngineMetrics values;
  std::vector<CachedConversation> conversations;

  std::vector<JobId> submit(std::vector<Submission> submissions) override {
    if (refuses) throw Error(ErrorKind::busy, "not now");
    {
      const std::lock_guard lock(mutex_);
      submitted.clear();
      for (const Submission& submission : submissions) submitted.push_back(submission.params.size());
    }
    std::vector<JobId> ids;
    for (Submission& submission : submissions) {
      for (std::size_t i = 0; i < submission.params.size(); ++i) {
        ids.push_back(submit(submission.prompt, submission.params[i], std::move(submission.sinks[i])));
      }
    }
    return ids;
  }
  void cancel(JobId id) override {
    {
      const std::lock_guard lock(mutex_);
      cancelled_.push_back(id);
    }
    changed_.notify_all();
  }
  JobId save_slot(std::int64_t slot, std::string file_name, SlotActionDone done) override {
    last_action = "save " + std::to_string(slot) + " " + file_name;
    done(SlotActionResult{5, 640, 1.5});
    return kSlotAction;
  }
  JobId restore_slot(std::int64_t slot, std::string file_name, SlotActionDone done) override {
    last_action = "restore " + std::to_string(slot) + " " + file_name;
    Failed failure;
    failure.kind = ErrorKind::invalid_request;
    failure.message = "no such file";
    done(std::move(failure));
    return kSlotAction;
  }
  JobId erase_slot(std::int64_t slot, SlotActionDone done) override {
    last_action = "erase " + std::to_string(slot);
    done(SlotActionResult{7, 0, 0});
    return kSlotAction;
  }
  std::vector<SlotSnapshot> slots() const override { return snapshots; }
  EngineMetrics metrics() const override { return values; }
  std::vector<CachedConversation> cached_conversations() const override { return conversations; }
  std::int64_t slot_context() const noexcept override { return 256; }
  int slot_count() const noexcept override { return slot_number; }
  bool has_slot_files() const noexcept override { return slot_files; }

  // --- what the test does ---

  static constexpr JobId kSlotAction = 1000;  // of every slot action
  static constexpr auto kPatience = std::chrono::seconds(30);

  // Waits until the n-th job (from 1) has been submitted.
  Job& job(JobId id) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kPatience, [&] { return jobs_.contains(id); })) << "no job " << id;
    return jobs_[id];
  }
  void wait_for_cancel(JobId id) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, kPatience, [&] { return std::ranges::find(cancelled_, id) != cancelled_.end(); }))
        << "job " << id << " was not cancelled";
  }
  std::size_t job_count() {
    const std::lock_guard lock(mutex_);
    return jobs_.size();
  }

  JobId submit(std::vector<TokenId> prompt, std::shared_ptr<const CompletionParams> params, JobSink sink) {
    JobId id = 0;
    {
      const std::lock_guard lock(mutex_);
      id = ++last_id_;
      jobs_[id] = {std::move(prompt), std::move(params), std::move(sink)};
    }
    changed_.notify_all();
    if (script) play(id, *script);
    return id;
  }

  void play(JobId id, const Script& what) {
    Job& target = job(id);
    target.sink(Started{});
    Done done;
    done.stop = what.stop;
    done.prompt_tokens = static_cast<int>(target.prompt.size());
    for (const std::string& text : what.pieces) {
      ++done.timings.predicted_n;
      Piece piece;
      piece.text = text;
      piece.token = done.timings.predicted_n;
      piece.timings = done.timings;
      done.text += text;
      done.tokens.push_back(piece.token);
      target.sink(std::move(piece));
    }
    done.slot_tokens = done.prompt_tokens + done.timings.predicted_n - 1;
    done.timings.prompt_n = done.prompt_tokens;
    target.sink(std::move(done));
  }

  std::string last_action;
  std::vector<std::size_t> submitted;  // answers to each of the prompts that came together last

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<JobId, Job> jobs_;
  std::vector<JobId> cancelled_;
  JobId last_id_ = 0;
};

// The vocabulary of the tiny model: the bytes as tokens 0 to 255, then the control tokens <s> (256) and </s> (257).
inline VocabularySource tiny_vocabulary() {
  const TemporaryFile file(tiny_model().build());
  return read_vocabulary(GgufFile::open(file.path()));
}

// A server's application around the fake engine: that vocabulary and the built-in ChatML template.
class FakeApp {
 public:
  FakeApp() : tokenizer_(tiny_vocabulary()), template_("") {}

  FakeService& service() { return service_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  App app() {
    App app;
    app.model.id = "tiny";
    app.model.path = "/models/tiny.gguf";
    app.model.file_type = "F32";
    app.tokenizer = &tokenizer_;
    app.chat_template = &template_;
    app.engine = &service_;
    return app;
  }

 private:
  Tokenizer tokenizer_;
  ChatTemplate template_;
  FakeService service_;
};

}  // namespace bankml::test
