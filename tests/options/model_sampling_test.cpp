// Sampling defaults that a model file brings along (docs/sampling.md, 1).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "bankml/options/options.hpp"
#include "support/gguf_builder.hpp"

namespace bankml {
namespace {

using test::GgufBuilder;
using testing::ElementsAre;

SamplingParams applied(const GgufBuilder& builder, Options options = {}) {
  const auto bytes = builder.build();
  apply_model_sampling(GgufFile::parse(bytes, "test.gguf"), options);
  return options.server.defaults.sampling;
}

TEST(ModelSampling, ReplacesTheBuiltInDefaults) {
  GgufBuilder builder;
  builder.f32("general.sampling.temp", 0.25f).i32("general.sampling.top_k", 7).string("general.sampling.top_p", "0.5");
  builder.string("general.sampling.sequence", "top_p;temperature");
  const SamplingParams sampling = applied(builder);
  EXPECT_EQ(sampling.temperature, 0.25f);
  EXPECT_EQ(sampling.top_k, 7);
  EXPECT_EQ(sampling.top_p, 0.5f);
  EXPECT_THAT(sampling.samplers, ElementsAre(SamplerKind::top_p, SamplerKind::temperature));
  EXPECT_EQ(sampling.min_p, SamplingParams().min_p);
}

TEST(ModelSampling, LeavesWhatAFlagHasSet) {
  GgufBuilder builder;
  builder.f32("general.sampling.temp", 0.25f).string("general.sampling.sequence", "top_p");
  Options options;
  options.given = {"--temp", "--samplers"};
  options.server.defaults.sampling.temperature = 0.75f;
  const SamplingParams sampling = applied(builder, options);
  EXPECT_EQ(sampling.temperature, 0.75f);
  EXPECT_EQ(sampling.samplers, SamplingParams().samplers);
}

TEST(ModelSampling, IgnoresWhatIsNoNumberOrTooLarge) {
  GgufBuilder builder;
  builder.string("general.sampling.temp", "warm").boolean("general.sampling.top_k", true);
  builder.f32("general.sampling.min_p", std::numeric_limits<float>::infinity());
  builder.f32("general.sampling.mirostat", 1e20f).u32("general.sampling.sequence", 3);
  const SamplingParams sampling = applied(builder), usual;
  EXPECT_EQ(sampling.temperature, usual.temperature);
  EXPECT_EQ(sampling.top_k, usual.top_k);
  EXPECT_EQ(sampling.min_p, usual.min_p);
  EXPECT_EQ(sampling.mirostat, usual.mirostat);
  EXPECT_EQ(sampling.samplers, usual.samplers);
}

// Each request without a value of its own would be refused.
TEST(ModelSampling, IgnoresARepeatPenaltyThatNoRequestMayHave) {
  for (const float penalty : {0.0f, -1.0f, 1e-40f}) {
    EXPECT_EQ(applied(GgufBuilder().f32("general.sampling.penalty_repeat", penalty)).repeat_penalty, 1.0f) << penalty;
  }
  EXPECT_EQ(applied(GgufBuilder().f32("general.sampling.penalty_repeat", 1.5f)).repeat_penalty, 1.5f);
}

}  // namespace
}  // namespace bankml
