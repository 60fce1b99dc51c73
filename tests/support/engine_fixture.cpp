#include "support/engine_fixture.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>

#include "support/tiny_model.hpp"

namespace bankml::test {
namespace {

constexpr std::chrono::minutes kPatience{1};

std::filesystem::path write_tiny_model() {
  static std::atomic<int> count{0};
  const auto path = std::filesystem::temp_directory_path() /
                    ("bankml-tiny-" + std::to_string(::getpid()) + "-" + std::to_string(++count) + ".gguf");
  const std::vector<std::byte> bytes = tiny_model().build();
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  return path;
}

}  // namespace

struct Answer::State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<JobEvent> events;
  std::optional<Done> done;
  std::optional<Failed> failed;
  std::size_t pieces = 0;
  bool ended() const { return done || failed; }
};

std::shared_ptr<Answer::State> Answer::make_state() {
  return std::make_shared<State>();
}

JobSink Answer::sink() {
  return [state = state_](JobEvent&& event) {
    const std::lock_guard lock(state->mutex);
    EXPECT_FALSE(state->ended()) << "an event after the end";
    if (auto* done = std::get_if<Done>(&event)) state->done = *done;
    if (auto* failed = std::get_if<Failed>(&event)) state->failed = *failed;
    if (std::holds_alternative<Piece>(event)) ++state->pieces;
    state->events.push_back(std::move(event));
    state->changed.notify_all();
  };
}

void Answer::wait() {
  std::unique_lock lock(state_->mutex);
  ASSERT_TRUE(state_->changed.wait_for(lock, kPatience, [&] { return state_->ended(); })) << "no answer";
}

bool Answer::done() {
  const std::lock_guard lock(state_->mutex);
  return state_->ended();
}

const Done& Answer::result() {
  wait();
  static const Done none;
  EXPECT_TRUE(state_->done) << (state_->failed ? state_->failed->message : "no end");
  return state_->done ? *state_->done : none;
}

const Failed& Answer::failure() {
  wait();
  static const Failed none;
  EXPECT_TRUE(state_->failed) << "the job did not fail";
  return state_->failed ? *state_->failed : none;
}

std::vector<JobEvent> Answer::events() {
  const std::lock_guard lock(state_->mutex);
  return state_->events;
}

void Answer::wait_for_pieces(std::size_t n) {
  std::unique_lock lock(state_->mutex);
  ASSERT_TRUE(state_->changed.wait_for(lock, kPatience, [&] { return state_->pieces >= n || state_->ended(); }));
}

EngineOptions EngineFixture::default_options() {
  EngineOptions options;
  options.context = 256;
  options.cache_ram_mib = -1;
  options.n_predict = 4;
  options.warmup = false;
  return options;
}

CompletionParams EngineFixture::default_params() {
  CompletionParams params;
  params.sampling.temperature = 0.0f;
  for (const TokenId eos : {256, 257}) params.sampling.logit_bias.emplace_back(eos, -INFINITY);
  return params;
}

EngineFixture::EngineFixture(EngineOptions options, std::filesystem::path model, std::unique_ptr<Device> device)
    : device_(std::move(device)) {
  if (model.empty()) model = own_model_ = write_tiny_model();
  model_ = Model::load(model, *device_);
  tokenizer_ = std::make_unique<Tokenizer>(read_vocabulary(model_->file()));
  engine_ = std::make_unique<Engine>(*model_, *tokenizer_, options);
}

void EngineFixture::close() {
  engine_.reset();
  tokenizer_.reset();
  model_.reset();
}

EngineFixture::~EngineFixture() {
  close();
  if (!own_model_.empty()) std::filesystem::remove(own_model_);
}

std::pair<JobId, Answer> EngineFixture::submit(std::vector<TokenId> prompt, CompletionParams params) {
  Answer answer;
  const JobId id =
      engine_->submit(std::move(prompt), std::make_shared<const CompletionParams>(std::move(params)), answer.sink());
  return {id, answer};
}

std::pair<std::vector<JobId>, std::vector<Answer>> EngineFixture::submit_copies(std::vector<TokenId> prompt,
                                                                                std::size_t copies,
                                                                                CompletionParams params) {
  std::vector<Answer> answers(copies);
  Submission submission{std::move(prompt), {}, {}};
  submission.params.assign(copies, std::make_shared<const CompletionParams>(std::move(params)));
  for (Answer& answer : answers) submission.sinks.push_back(answer.sink());
  std::vector<Submission> submissions;
  submissions.push_back(std::move(submission));
  return {engine_->submit(std::move(submissions)), answers};
}

Done EngineFixture::ask(std::vector<TokenId> prompt, CompletionParams params) {
  return submit(std::move(prompt), std::move(params)).second.result();
}

namespace {

template <class Act>
EngineFixture::ActionResult await(Act&& act) {
  std::promise<EngineFixture::ActionResult> promise;
  auto future = promise.get_future();
  act([&](EngineFixture::ActionResult&& result) { promise.set_value(std::move(result)); });
  return future.get();
}

}  // namespace

EngineFixture::ActionResult EngineFixture::save(const std::string& name, std::int64_t slot) {
  return await([&](SlotActionDone done) { engine_->save_slot(slot, name, std::move(done)); });
}
EngineFixture::ActionResult EngineFixture::restore(const std::string& name, std::int64_t slot) {
  return await([&](SlotActionDone done) { engine_->restore_slot(slot, name, std::move(done)); });
}
EngineFixture::ActionResult EngineFixture::erase(std::int64_t slot) {
  return await([&](SlotActionDone done) { engine_->erase_slot(slot, std::move(done)); });
}

std::vector<TokenId> range(TokenId from, TokenId to) {
  std::vector<TokenId> tokens;
  for (TokenId t = from; t <= to; ++t) tokens.push_back(t);
  return tokens;
}

std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace bankml::test
