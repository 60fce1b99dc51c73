// The forward pass with mixtures of experts: tokens as llama-server b11192 chose them for the same random models.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "bankml/model/model.hpp"
#include "support/expect_error.hpp"
#include "support/tiny_model.hpp"

namespace bankml {
namespace {

using test::GgufBuilder;
using test::tiny_model;
using Tokens = std::vector<TokenId>;

// What is asked of every model: n tokens that repeat nothing.
Tokens prompt(int n) {
  Tokens out;
  for (int i = 0; i < n; ++i) out.push_back((7 * i * i + 3 * i + 5) % 256);
  return out;
}

class Conversation {
 public:
  Conversation(const Model& model, Device& device)
      : pool_(device, model.config(), DType::f16, DType::f16, 0),
        transformer_(model, pool_, {.max_rows = 128, .max_logit_rows = 1, .max_sequences = 1, .context = 256}) {}

  // The logits behind the last of these tokens, which follow those of the calls before.
  std::span<const float> go_on(const Tokens& tokens) {
    std::vector<BatchRow> rows;
    auto position = static_cast<std::int32_t>(sequence_.length());
    for (const TokenId token : tokens) rows.push_back({token, position++, 0, false});
    rows.back().wants_logits = true;
    KvSequence* const one[] = {&sequence_};
    transformer_.forward(rows, one);
    return transformer_.logits(0);
  }

 private:
  KvPool pool_;
  Transformer transformer_;
  KvSequence sequence_;
};

class LoadedModel {
 public:
  explicit LoadedModel(const GgufBuilder& builder)
      : bytes_(builder.build()), model_(Model::load(GgufFile::parse(bytes_, "test.gguf"), *device_)) {}

  // The likeliest token that doesn't end the answer, again and again.
  Tokens continue_greedily(const Tokens& tokens, int n) {
    Conversation conversation(*model_, *device_);
    Tokens out, next = tokens;
    while (std::ssize(out) < n) {
      const auto logits = conversation.go_on(next).first(test::kTinyVocab - 1);
      out.push_back(static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      next = {out.back()};
    }
    return out;
  }

  std::vector<float> logits(const Tokens& tokens) {
    Conversation conversation(*model_, *device_);
    const auto found = conversation.go_on(tokens);
    return {found.begin(), found.end()};
  }

 private:
  std::vector<std::byte> bytes_;
  std::unique_ptr<Device> device_ = make_cpu_device(2);
  std::unique_ptr<Model> model_;
};

void expect_tokens(const GgufBuilder& builder, const Tokens& after_1, const Tokens& after_20, const Tokens& after_70) {
  LoadedModel model(builder);
  EXPECT_EQ(model.continue_greedily(prompt(1), 8), after_1);
  EXPECT_EQ(model.continue_greedily(prompt(20), 8), after_20);
  EXPECT_EQ(model.continue_greedily(prompt(70), 8), after_70);
}

TEST(ExpertModels, Mixtral) {
  expect_tokens(tiny_model({.experts = 4}), {153, 147, 243, 102, 147, 32, 147, 150},
                {118, 165, 46, 119, 119, 119, 119, 119}, {107, 207, 149, 119, 137, 84, 137, 101});
}

TEST(ExpertModels, Qwen3Moe) {
  GgufBuilder builder = tiny_model({.experts = 8, .experts_used = 3, .qk_norm = true, .architecture = "qwen3moe"});
  expect_tokens(builder.u32("qwen3moe.expert_feed_forward_length", 96), {133, 90, 52, 52, 52, 52, 228, 191},
                {83, 17, 235, 251, 113, 217, 166, 217}, {127, 8, 110, 153, 20, 104, 101, 222});
}

TEST(ExpertModels, GraniteMoeWithAnExpertOfEveryRow) {
  GgufBuilder builder = tiny_model({.experts = 4, .shared_hidden = 40, .architecture = "granitemoe"});
  builder.f32("granitemoe.logit_scale", 4.0f).f32("granitemoe.residual_scale", 0.5f);
  builder.f32("granitemoe.embedding_scale", 2.0f).f32("granitemoe.attention.scale", 0.2f);
  expect_tokens(builder, {51, 160, 172, 184, 123, 165, 69, 139}, {237, 132, 77, 214, 246, 91, 61, 28},
                {239, 151, 68, 125, 205, 13, 202, 176});
}

TEST(ExpertModels, GptOss) {
  GgufBuilder builder = tiny_model(
      {.biases = true, .experts = 4, .sinks = true, .ffn_norm = "post_attention_norm", .architecture = "gpt-oss"});
  builder.u32("gpt-oss.expert_feed_forward_length", 96).u32("gpt-oss.attention.sliding_window", 32);
  expect_tokens(builder, {141, 41, 160, 69, 159, 182, 21, 33}, {141, 249, 193, 80, 42, 228, 41, 18},
                {155, 41, 242, 138, 199, 92, 217, 44});
}

TEST(DenseModels, SmolLm3) {
  expect_tokens(tiny_model({.layers = 5, .architecture = "smollm3"}), {60, 67, 210, 155, 155, 155, 246, 116},
                {21, 85, 60, 60, 0, 156, 156, 156}, {210, 76, 116, 39, 39, 39, 128, 124});
}

TEST(ExpertModels, GateAndUpMayBeOneTensor) {
  constexpr int kDim = 64, kHidden = 96, kExperts = 4, kEach = kDim * kHidden;
  GgufBuilder apart = tiny_model({.experts = kExperts}), fused = apart;
  const std::vector<std::byte> bytes = apart.build();
  const GgufFile file = GgufFile::parse(bytes, "apart");
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    std::vector<float> values;
    for (int e = 0; e < kExperts; ++e) {
      for (const char* name : {"ffn_gate_exps.weight", "ffn_up_exps.weight"}) {
        const auto* all = reinterpret_cast<const float*>(file.find_tensor(layer + name)->data.data());
        values.insert(values.end(), all + e * kEach, all + (e + 1) * kEach);
      }
    }
    fused.remove_tensor(layer + "ffn_gate_exps.weight").remove_tensor(layer + "ffn_up_exps.weight");
    fused.f32_tensor(layer + "ffn_gate_up_exps.weight", {kDim, 2 * kHidden, kExperts}, values);
  }
  EXPECT_EQ(LoadedModel(fused).logits(prompt(20)), LoadedModel(apart).logits(prompt(20)));
}

TEST(ExpertModels, ATensorForEachExpertIsRefusedByName) {
  GgufBuilder builder = tiny_model({.experts = 4});
  builder.f32_tensor("blk.0.ffn_gate.0.weight", {64, 96}, std::vector<float>(64 * 96));
  test::expect_error(ErrorKind::unsupported,
                     "tensor 'blk.0.ffn_gate.0.weight': a tensor for each expert is not supported",
                     [&] { LoadedModel model(builder); });
}

TEST(ExpertModels, AMissingTensorIsNamed) {
  for (const std::string name :
       {"blk.1.ffn_gate_inp.weight", "blk.1.ffn_down_exps.weight", "blk.1.ffn_up_exps.weight"}) {
    test::expect_error(ErrorKind::invalid_request, "tensor '" + name + "' of shape",
                       [&] { LoadedModel model(tiny_model({.experts = 4}).remove_tensor(name)); });
  }
}

}  // namespace
}  // namespace bankml
