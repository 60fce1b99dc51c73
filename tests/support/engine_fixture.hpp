#pragma once
// An engine over the tiny model, asked and waited for.
#include <condition_variable>
#include <filesystem>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "bankml/engine/engine.hpp"

namespace bankml::test {

// What a job's sink received, readable from the test's thread.
class Answer {
 public:
  JobSink sink();
  // Waits for the end. Fails the test if it took longer than a minute.
  void wait();
  bool done();
  const Done& result();            // waits
  const Failed& failure();         // waits
  std::vector<JobEvent> events();  // so far
  // Waits until this many pieces have come, or the end.
  void wait_for_pieces(std::size_t n);

 private:
  struct State;
  std::shared_ptr<State> state_ = make_state();
  static std::shared_ptr<State> make_state();
};

class EngineFixture {
 public:
  // Over the tiny model, or another one of tests/data; on the CPU backend, or another device.
  explicit EngineFixture(EngineOptions options = default_options(), std::filesystem::path model = {},
                         std::unique_ptr<Device> device = make_cpu_device(2));
  ~EngineFixture();

  static EngineOptions default_options();    // one slot of 256 tokens, no limit of the cache, 4 tokens an answer
  static CompletionParams default_params();  // greedy, never stops by itself

  Engine& engine() { return *engine_; }
  Device& device() { return *device_; }
  void close();  // ends the engine and the model; the device stays
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  // Queues a prompt.
  std::pair<JobId, Answer> submit(std::vector<TokenId> prompt, CompletionParams params = default_params());
  // Queues several answers to one prompt.
  std::pair<std::vector<JobId>, std::vector<Answer>> submit_copies(std::vector<TokenId> prompt, std::size_t copies,
                                                                   CompletionParams params = default_params());
  // Asks and waits.
  Done ask(std::vector<TokenId> prompt, CompletionParams params = default_params());

  using ActionResult = std::variant<SlotActionResult, Failed>;
  ActionResult save(const std::string& name, std::int64_t slot = 0);
  ActionResult restore(const std::string& name, std::int64_t slot = 0);
  ActionResult erase(std::int64_t slot = 0);

 private:
  std::filesystem::path own_model_;  // made for this fixture, empty: none
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::unique_ptr<Engine> engine_;
};

// The tokens from, from + 1, ... to.
std::vector<TokenId> range(TokenId from, TokenId to);
std::vector<TokenId> operator+(std::vector<TokenId> a, const std::vector<TokenId>& b);

}  // namespace bankml::test
