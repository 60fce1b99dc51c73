// What each architecture turns into (docs/architectures.md, sections 3 to 5).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "bankml/model/config.hpp"
#include "support/expect_error.hpp"
#include "support/gguf_builder.hpp"
#include "support/tiny_model.hpp"

namespace bankml {
namespace {

using test::expect_error;
using test::GgufBuilder;
using test::tiny_model;
using testing::Each;
using testing::ElementsAre;

ModelConfig config_of(const GgufBuilder& builder, const RopeOverrides& overrides = {}) {
  const auto bytes = builder.build();
  return read_config(GgufFile::parse(bytes, "test.gguf"), overrides);
}
ModelConfig tiny_config(const std::string& name) {
  return read_config(GgufFile::open(std::filesystem::path(BANKML_TEST_DATA) / "tiny" / (name + "-Q8_0.gguf")));
}
std::vector<int> windows(const ModelConfig& config) {
  std::vector<int> out;
  for (const LayerConfig& layer : config.layer) out.push_back(layer.window);
  return out;
}
GgufBuilder gemma3(int layers) {
  GgufBuilder builder = tiny_model({.layers = layers, .architecture = "gemma3"});
  builder.u32("gemma3.attention.sliding_window", 64).f32("gemma3.rope.freq_base", 1e6f);
  return builder;
}

TEST(Qwen2, RotatesHalvesAndHasNoNormOfHeads) {
  const ModelConfig config = tiny_config("tiny-qwen2");
  EXPECT_EQ(config.layer[0].rope.style, RopeStyle::neox);
  EXPECT_EQ(config.qk_norm, ModelConfig::QkNorm::none);
  EXPECT_EQ(config.attention_scale, 1.0f / std::sqrt(32.0f));
  EXPECT_EQ(config.q_scale, 1.0f);
  EXPECT_EQ(config.output_tensor, ModelConfig::OutputTensor::optional);
  EXPECT_FALSE(config.windowed());
  EXPECT_FALSE(config.rope_freqs);
}

TEST(Qwen2, DoesNotReadTheAttentionScaleOfTheFile) {
  GgufBuilder builder = tiny_model({.architecture = "qwen2"});
  EXPECT_EQ(config_of(builder.f32("qwen2.attention.scale", 0.5f)).attention_scale, 0.25f);
}

TEST(Qwen3, HasANormOfEachHead) {
  EXPECT_EQ(tiny_config("tiny-qwen3").qk_norm, ModelConfig::QkNorm::head);
}

TEST(Phi3, ScalesQAndHasNoWindow) {
  GgufBuilder builder = tiny_model({.architecture = "phi3"});
  const ModelConfig config = config_of(builder.u32("phi3.attention.sliding_window", 64));
  EXPECT_EQ(config.attention_scale, 1.0f);
  EXPECT_EQ(config.q_scale, 0.25f);
  EXPECT_TRUE(config.rope_long_factors);
  EXPECT_FALSE(config.windowed());
}

TEST(Phi3, MayRotateAPartOfAHead) {
  const auto with = [](std::uint32_t n_rot) {
    return tiny_model({.architecture = "phi3"}).u32("phi3.rope.dimension_count", n_rot);
  };
  EXPECT_EQ(config_of(with(12)).layer[0].rope.n_rot, 12);
  for (const std::uint32_t wrong : {7u, 18u}) {
    expect_error(ErrorKind::invalid_request, "expected an even number up to the head length, 16",
                 [&] { config_of(with(wrong)); });
  }
}

TEST(Olmo2, NormsBranchesAndWholeVectors) {
  const ModelConfig config = tiny_config("tiny-olmo2");
  EXPECT_FALSE(config.pre_norms);
  EXPECT_TRUE(config.post_norms);
  EXPECT_EQ(config.qk_norm, ModelConfig::QkNorm::whole);
  EXPECT_EQ(config.output_tensor, ModelConfig::OutputTensor::required);
  EXPECT_FALSE(config.windowed());
}

TEST(Olmo2, DoesNotScalePositionsOfLayersWithAWindow) {
  GgufBuilder builder = tiny_model({.layers = 4, .architecture = "olmo2"});
  builder.u32("olmo2.attention.sliding_window", 64).f32("olmo2.rope.freq_base", 5e5f);
  builder.string("olmo2.rope.scaling.type", "yarn").f32("olmo2.rope.scaling.factor", 8.0f);
  builder.f32("olmo2.rope.scaling.attn_factor", 1.5f);
  const ModelConfig config = config_of(builder);
  EXPECT_THAT(windows(config), ElementsAre(64, 64, 64, 0));
  const RopeParams &window = config.layer[0].rope, &full = config.layer[3].rope;
  EXPECT_EQ(window.base, 5e5f);
  EXPECT_EQ(window.freq_scale, 1.0f);
  EXPECT_EQ(window.ext_factor, 0.0f);
  EXPECT_EQ(window.attn_factor, 1.0f);
  EXPECT_EQ(full.freq_scale, 0.125f);
  EXPECT_EQ(full.ext_factor, 1.0f);
  EXPECT_EQ(full.attn_factor, 1.5f);
}

TEST(Granite, HasFourScales) {
  const ModelConfig config = tiny_config("tiny-granite");
  EXPECT_EQ(config.embedding_scale, 2.0f);
  EXPECT_EQ(config.residual_scale, 0.5f);
  EXPECT_EQ(config.logit_scale, 0.25f);
  EXPECT_EQ(config.attention_scale, 0.1f);
  EXPECT_EQ(config.layer[0].rope.style, RopeStyle::adjacent);
}

TEST(Granite, WantsTheLogitScale) {
  expect_error(ErrorKind::invalid_request, "key 'granite.logit_scale': missing",
               [] { config_of(tiny_model({.architecture = "granite"})); });
}

TEST(Granite, TakesZeroForNoScale) {
  GgufBuilder builder = tiny_model({.architecture = "granite"});
  builder.f32("granite.logit_scale", 0.0f).f32("granite.residual_scale", 0.0f);
  const ModelConfig config = config_of(builder);
  EXPECT_EQ(config.logit_scale, 1.0f);
  EXPECT_EQ(config.residual_scale, 1.0f);
  EXPECT_EQ(config.embedding_scale, 1.0f);
}

TEST(Granite, DoesNotRotateIfTheFileSaysSo) {
  GgufBuilder builder = tiny_model({.architecture = "granite"});
  builder.f32("granite.logit_scale", 1.0f).boolean("granite.rope.scaling.finetuned", false);
  EXPECT_EQ(config_of(builder).layer[0].rope.style, RopeStyle::none);
}

TEST(Gemma2, ScalesEmbeddingsCapsScoresAndHasAWindowInEverySecondLayer) {
  const ModelConfig config = tiny_config("tiny-gemma2");
  EXPECT_EQ(config.embedding_scale, std::sqrt(128.0f));
  EXPECT_EQ(config.attention_softcap, 50.0f);
  EXPECT_EQ(config.logit_softcap, 30.0f);
  EXPECT_EQ(config.attention_scale, 1.0f);
  EXPECT_EQ(config.q_scale, 1.0f / std::sqrt(32.0f));
  EXPECT_EQ(config.activation, GluKind::gelu);
  EXPECT_TRUE(config.pre_norms);
  EXPECT_TRUE(config.post_norms);
  EXPECT_EQ(config.output_tensor, ModelConfig::OutputTensor::tied);
  EXPECT_THAT(windows(config), ElementsAre(64, 0));
}

TEST(Gemma2, HasDefaultsForWindowAndCaps) {
  const ModelConfig config = config_of(tiny_model({.architecture = "gemma2"}));
  EXPECT_THAT(windows(config), ElementsAre(4096, 0));
  EXPECT_EQ(config.attention_softcap, 50.0f);
  EXPECT_EQ(config.logit_softcap, 30.0f);
}

TEST(Gemma2, TakesTheScaleOfItsLargestModelFromTheWidth) {
  const GgufBuilder builder =
      tiny_model({.layers = 46, .dim = 64, .heads = 2, .head_dim = 16, .architecture = "gemma2"});
  EXPECT_EQ(config_of(builder).q_scale, 1.0f / std::sqrt(32.0f));
}

TEST(Gemma2, RefusesMoreHeadsThanItsWidthHasElements) {
  const GgufBuilder builder =
      tiny_model({.layers = 46, .dim = 64, .heads = 128, .head_dim = 16, .architecture = "gemma2"});
  expect_error(ErrorKind::invalid_request, "expected at most 64 heads, found 128", [&] { config_of(builder); });
}

TEST(Gemma3, HasAWindowInAllButEverySixthLayer) {
  const ModelConfig config = tiny_config("tiny-gemma3");
  EXPECT_THAT(windows(config), ElementsAre(64, 64, 64, 64, 64, 0, 64));
  EXPECT_EQ(config.qk_norm, ModelConfig::QkNorm::head);
  EXPECT_EQ(config.attention_softcap, 0.0f);
  EXPECT_EQ(config.logit_softcap, 0.0f);
  EXPECT_TRUE(config.windowed());
}

TEST(Gemma3, HasNoWindowWithoutTheKey) {
  EXPECT_THAT(windows(config_of(gemma3(7).remove("gemma3.attention.sliding_window"))), Each(0));
  EXPECT_THAT(windows(config_of(gemma3(7).u32("gemma3.attention.sliding_window", 0))), Each(0));
}

TEST(Gemma3, TakesThePatternOfTheFile) {
  constexpr const char* kPattern = "gemma3.attention.sliding_window_pattern";
  EXPECT_THAT(windows(config_of(gemma3(3).u32(kPattern, 2))), ElementsAre(64, 0, 64));
  EXPECT_THAT(windows(config_of(gemma3(3).u32(kPattern, 0))), ElementsAre(64, 64, 64));
  EXPECT_THAT(windows(config_of(gemma3(3).u32(kPattern, 1))), ElementsAre(0, 0, 0));
  EXPECT_THAT(windows(config_of(gemma3(3).bools(kPattern, {0, 1, 1}))), ElementsAre(0, 64, 64));
  expect_error(ErrorKind::invalid_request, "expected an array of 3 elements, found 2", [&] {
    config_of(gemma3(3).bools(kPattern, {0, 1}));
  });
}

TEST(Gemma3, RotatesLayersWithAWindowByTheirOwnBase) {
  const ModelConfig config = config_of(gemma3(6).f32("gemma3.rope.scaling.factor", 8.0f));
  EXPECT_EQ(config.layer[0].rope.base, 10000.0f);
  EXPECT_EQ(config.layer[0].rope.freq_scale, 1.0f);
  EXPECT_EQ(config.layer[5].rope.base, 1e6f);
  EXPECT_EQ(config.layer[5].rope.freq_scale, 0.125f);
  EXPECT_EQ(config_of(gemma3(6).f32("gemma3.rope.freq_base_swa", 2e4f)).layer[0].rope.base, 2e4f);
}

TEST(Gemma3, KeepsTheRotationOfLayersWithAWindowWhateverTheUserSays) {
  const ModelConfig config = config_of(gemma3(6), {.freq_base = 5e5f, .freq_scale = 0.5f});
  EXPECT_EQ(config.layer[0].rope.base, 10000.0f);
  EXPECT_EQ(config.layer[0].rope.freq_scale, 1.0f);
  EXPECT_EQ(config.layer[5].rope.base, 5e5f);
  EXPECT_EQ(config.layer[5].rope.freq_scale, 0.5f);
}

TEST(SmolLm3, DoesNotRotateEveryFourthLayer) {
  const ModelConfig config = config_of(tiny_model({.layers = 5, .architecture = "smollm3"}));
  std::vector<RopeStyle> styles;
  for (const LayerConfig& layer : config.layer) styles.push_back(layer.rope.style);
  const RopeStyle yes = RopeStyle::adjacent, no = RopeStyle::none;
  EXPECT_THAT(styles, ElementsAre(yes, yes, yes, no, yes));
}

TEST(Mixtral, IsLlamaWithExpertsOfTheDenseWidth) {
  const ModelConfig config = config_of(tiny_model({.experts = 4}));
  EXPECT_EQ(config.experts.count, 4);
  EXPECT_EQ(config.experts.used, 2);
  EXPECT_EQ(config.experts.hidden, 96);
  EXPECT_EQ(config.experts.shared_hidden, 0);
  EXPECT_TRUE(config.experts.router.normalize);
  EXPECT_FALSE(config.experts.router.softmax_of_chosen);
  EXPECT_EQ(config.experts.router.scale, 1.0f);
  EXPECT_EQ(config_of(tiny_model()).experts.count, 0);
}

// Nor does llama-server, in any architecture that is built in.
TEST(Mixtral, DoesNotReadTheScaleOfWeightsOfTheFile) {
  GgufBuilder builder = tiny_model({.experts = 4}).f32("llama.expert_weights_scale", 2.5f);
  EXPECT_EQ(config_of(builder).experts.router.scale, 1.0f);
}

TEST(Mixtral, WantsFewerExpertsUsedThanThereAre) {
  expect_error(ErrorKind::invalid_request, "key 'llama.expert_used_count': expected at most the 4 experts, found 5",
               [] { config_of(tiny_model({.experts = 4, .experts_used = 5})); });
  expect_error(ErrorKind::invalid_request, "key 'llama.expert_used_count'",
               [] { config_of(tiny_model({.experts = 4, .experts_used = 0})); });
  expect_error(ErrorKind::invalid_request, "key 'llama.expert_used_count': missing",
               [] { config_of(tiny_model({.experts = 4}).remove("llama.expert_used_count")); });
}

TEST(Mixtral, WantsAllLayersToUseAsManyExperts) {
  GgufBuilder builder = tiny_model({.experts = 4});
  builder.remove("llama.expert_used_count").i32s("llama.expert_used_count", {2, 2});
  EXPECT_EQ(config_of(builder).experts.used, 2);
  builder.remove("llama.expert_used_count").i32s("llama.expert_used_count", {2, 3});
  expect_error(ErrorKind::unsupported, "layers that use different numbers of experts", [&] { config_of(builder); });
}

TEST(Qwen3Moe, HasExpertsOfTheirOwnWidth) {
  GgufBuilder builder = tiny_model({.experts = 8, .experts_used = 3, .architecture = "qwen3moe"});
  EXPECT_EQ(config_of(builder).experts.hidden, 96 / 3);
  builder.u32("qwen3moe.expert_feed_forward_length", 24);
  EXPECT_EQ(config_of(builder).experts.hidden, 24);
  EXPECT_EQ(config_of(builder.remove("qwen3moe.feed_forward_length")).experts.hidden, 24);
  EXPECT_EQ(config_of(builder).qk_norm, ModelConfig::QkNorm::head);
  expect_error(ErrorKind::invalid_request, "key 'qwen3moe.expert_feed_forward_length': expected a width above 0",
               [&] { config_of(builder.remove("qwen3moe.expert_feed_forward_length")); });
}

TEST(Qwen3Moe, WantsExperts) {
  expect_error(ErrorKind::invalid_request, "key 'qwen3moe.expert_count': expected experts, found none",
               [] { config_of(tiny_model({.architecture = "qwen3moe"})); });
}

TEST(GraniteMoe, MayHaveAnExpertOfEveryRow) {
  GgufBuilder builder = tiny_model({.experts = 4, .shared_hidden = 40, .architecture = "granitemoe"});
  builder.f32("granitemoe.logit_scale", 4.0f).f32("granitemoe.residual_scale", 0.5f);
  const ModelConfig config = config_of(builder);
  EXPECT_EQ(config.experts.shared_hidden, 40);
  EXPECT_EQ(config.residual_scale, 0.5f);
}

TEST(GptOss, DiffersFromTheOthersInMost) {
  GgufBuilder builder = tiny_model({.experts = 4, .architecture = "gpt-oss"});
  builder.u32("gpt-oss.expert_feed_forward_length", 96).u32("gpt-oss.attention.sliding_window", 128);
  const ModelConfig config = config_of(builder);
  EXPECT_TRUE(config.sinks);
  EXPECT_TRUE(config.all_rows_to_end);
  EXPECT_EQ(config.ffn_norm, "post_attention_norm");
  EXPECT_EQ(config.activation, GluKind::clamped_swiglu);
  EXPECT_TRUE(config.experts.router.softmax_of_chosen);
  EXPECT_FALSE(config.experts.router.normalize);
  EXPECT_TRUE(config.experts.router_bias);
  EXPECT_THAT(windows(config), ElementsAre(128, 0));
  EXPECT_EQ(config.output_tensor, ModelConfig::OutputTensor::required);
}

}  // namespace
}  // namespace bankml
