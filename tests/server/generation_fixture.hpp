#pragma once
// A generation that has ended, for the tests of answer formats.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/answer_format.hpp"
#include "server/fake_service.hpp"
#include "server/generation_reply.hpp"

namespace bankml::test {

class GenerationFixture : public testing::Test {
 protected:
  GenerationFixture() {
    generation.tokenizer = &tokenizer_;
    generation.model = "tiny";
    generation.id = "chatcmpl-1";
    generation.created = 5;
    add_task();
  }
  void add_task() { generation.tasks.push_back({{'h', 'i'}, std::make_shared<CompletionParams>(params)}); }
  // Applies `params` to the first task.
  void use_params() { generation.tasks[0].params = std::make_shared<CompletionParams>(params); }

  static Piece piece(std::string text, TokenId token, int predicted) {
    Piece out;
    out.text = std::move(text);
    out.token = token;
    out.timings.predicted_n = predicted;
    return out;
  }
  static TokenProbability probability() {
    TokenProbability out;
    out.id = 97;
    out.bytes = "a";
    out.p = -0.5f;
    TokenProbability other;
    other.id = 195;
    other.bytes = "\xc3";
    other.p = -std::numeric_limits<float>::infinity();
    out.top = {out, other};
    return out;
  }
  static Done done() {
    Done out;
    out.text = "ab";
    out.tokens = {97, 98};
    out.stop = StopType::eos;
    out.prompt_tokens = 2;
    out.slot_tokens = 3;
    out.timings = {.cache_n = 1, .prompt_n = 1, .predicted_n = 2, .prompt_ms = 4, .predicted_ms = 8};
    return out;
  }
  boost::json::value whole(MakeFormat make, const std::vector<Done>& results) {
    return make(generation)->whole(results);
  }

  CompletionParams params;
  Generation generation;

 private:
  Tokenizer tokenizer_{tiny_vocabulary()};
};

}  // namespace bankml::test
