#include "bankml/engine/sampling.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "bankml/base/error.hpp"
#include "engine/dry.hpp"
#include "engine/random.hpp"
#include "support/expect_error.hpp"

namespace bankml {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::Not;

using enum SamplerKind;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

enum Token : TokenId { kUnknown, kBegin, kEnd, kTurn, kA, kB, kC, kAb, kColonSpace, kColon, kNever, kCount };

// A vocabulary of a few tokens: two of them end the generation, one is never to be sampled.
Tokenizer tiny_tokenizer() {
  VocabularySource source;
  source.model = "llama";
  source.tokens = {"<unk>", "<s>", "</s>", "<|im_end|>", "a", "b", "c", "ab", "x:", ":", "never"};
  source.scores = {0, 0, 0, 0, -1, -2, -3, -4, -5, -6, -7};
  source.types = {2, 3, 3, 3, 1, 1, 1, 1, 1, 1, 1};
  source.bos = kBegin;
  source.eos = kEnd;
  source.eot = kTurn;
  source.add_space_prefix = false;
  source.suppress_tokens = {kNever};
  return Tokenizer(std::move(source));
}

class SamplerTest : public ::testing::Test {
 protected:
  static const Tokenizer& tokenizer() {
    static const Tokenizer instance = tiny_tokenizer();
    return instance;
  }
  // Flat logits but for those given.
  static std::vector<float> logits(std::initializer_list<std::pair<TokenId, float>> values) {
    std::vector<float> out(kCount, 0.0f);
    for (const auto& [token, value] : values) out[static_cast<std::size_t>(token)] = value;
    return out;
  }
  static std::vector<TokenId> run(const SamplingParams& params, const std::vector<float>& values, int n) {
    Sampler sampler(params, tokenizer());
    std::vector<TokenId> out;
    for (int i = 0; i < n; ++i) {
      out.push_back(sampler.sample(values));
      sampler.accept(out.back());
    }
    return out;
  }

  SamplingParams params;
};

TEST_F(SamplerTest, IsGreedyAtTemperatureZero) {
  params.temperature = 0.0f;
  EXPECT_THAT(run(params, logits({{kC, 2.0f}, {kA, 1.9f}}), 3), ElementsAre(kC, kC, kC));
}

TEST_F(SamplerTest, GreedyGivesTheWinnerAllTheProbability) {
  params.temperature = 0.0f;
  Sampler sampler(params, tokenizer());
  sampler.sample(logits({{kC, 2.0f}}));
  const std::vector<Candidate> left = sampler.last_candidates(10);
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].id, kC);
  EXPECT_EQ(left[0].p, 1.0f);
}

TEST_F(SamplerTest, TakesTheLowestIdOfEqualLogitsWhenNothingSorts) {
  params.temperature = 0.0f;
  params.samplers = {temperature};
  EXPECT_THAT(run(params, logits({{kB, 2.0f}, {kC, 2.0f}}), 1), ElementsAre(kB));
}

TEST_F(SamplerTest, RepeatsItselfWithTheSameSeed) {
  params.seed = 42;
  const auto values = logits({{kA, 1.0f}, {kB, 0.5f}});
  EXPECT_EQ(run(params, values, 50), run(params, values, 50));
  SamplingParams other = params;
  other.seed = 43;
  EXPECT_NE(run(params, values, 50), run(other, values, 50));
}

TEST_F(SamplerTest, DrawsOneDoubleForEachToken) {
  params.seed = 7;
  params.samplers = {};
  std::vector<float> values(kCount, -kInfinity);
  values[kA] = values[kB] = 0.0f;
  RandomEngine random(7);
  for (const TokenId token : run(params, values, 30)) EXPECT_EQ(token, random.uniform_double() <= 0.5 ? kA : kB);
}

TEST_F(SamplerTest, UsesAFreshSeedForTheRandomOne) {
  const std::vector<float> values(kCount, 0.0f);
  EXPECT_NE(run(params, values, 60), run(params, values, 60));
}

TEST_F(SamplerTest, AddsBiasesUp) {
  params.temperature = 0.0f;
  params.logit_bias = {{kB, 1.0f}, {kB, 1.5f}};
  EXPECT_THAT(run(params, logits({{kA, 2.0f}}), 1), ElementsAre(kB));
}

TEST_F(SamplerTest, LeavesOutBiasesOfUnknownTokens) {
  params.temperature = 0.0f;
  params.logit_bias = {{-5, 9.0f}, {kCount, 9.0f}};
  EXPECT_THAT(run(params, logits({{kA, 2.0f}}), 1), ElementsAre(kA));
}

TEST_F(SamplerTest, NeverTakesWhatIsBiasedToMinusInfinity) {
  params.logit_bias = {{kA, -kInfinity}};
  params.seed = 1;
  EXPECT_THAT(run(params, logits({{kA, 20.0f}}), 50), Not(Contains(TokenId{kA})));
}

TEST_F(SamplerTest, NeverTakesASuppressedToken) {
  params.temperature = 0.0f;
  EXPECT_THAT(run(params, logits({{kNever, 20.0f}, {kA, 1.0f}}), 1), ElementsAre(kA));
}

TEST_F(SamplerTest, PenalisesTheTailOfThePrompt) {
  params.temperature = 0.0f;
  params.presence_penalty = 1.0f;
  params.repeat_last_n = 2;
  Sampler sampler(params, tokenizer());
  sampler.accept_prompt(std::vector<TokenId>{kA, kB, kB});
  EXPECT_EQ(sampler.sample(logits({{kA, 2.0f}, {kB, 2.5f}})), kA);
}

TEST_F(SamplerTest, PenalisesWhatItGenerated) {
  params.temperature = 0.0f;
  params.frequency_penalty = 1.0f;
  EXPECT_THAT(run(params, logits({{kA, 3.0f}, {kB, 2.5f}}), 4), ElementsAre(kA, kB, kA, kB));
}

TEST_F(SamplerTest, AppliesAStageAsOftenAsItIsListed) {
  params.seed = 1;
  params.temperature = 0.5f;
  params.samplers = {temperature, temperature};
  Sampler sampler(params, tokenizer());
  std::vector<float> values(kCount, -kInfinity);
  values[kA] = std::log(0.75f);
  values[kB] = std::log(0.25f);
  sampler.sample(values);
  const auto left = sampler.last_candidates(2);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_THAT(left[0].p, FloatNear(81.0f / 82, 1e-5f));  // 3^4 to 1
}

TEST_F(SamplerTest, IgnoresTheListWithMirostat) {
  params.mirostat = 2;
  params.mirostat_tau = 0.0f;  // keeps one token
  params.samplers = {top_k};
  params.top_k = 3;
  EXPECT_THAT(run(params, logits({{kC, 5.0f}}), 3), ElementsAre(kC, kC, kC));
}

TEST_F(SamplerTest, GivesTheCandidatesThatWereLeftMostLikelyFirst) {
  params.seed = 3;
  params.samplers = {min_p};
  params.min_p = 0.2f;
  Sampler sampler(params, tokenizer());
  std::vector<float> values(kCount, -10.0f);
  values[kA] = std::log(0.25f);
  values[kC] = std::log(0.75f);
  sampler.sample(values);
  const auto left = sampler.last_candidates(10);
  ASSERT_EQ(left.size(), 2u);
  EXPECT_EQ(left[0].id, kC);
  EXPECT_THAT(left[0].p, FloatNear(0.75f, 1e-6f));
  EXPECT_EQ(left[1].id, kA);
  EXPECT_EQ(sampler.last_candidates(1).size(), 1u);
}

TEST_F(SamplerTest, SurvivesABiasOfInfinity) {
  params.logit_bias = {{kA, kInfinity}, {kA, -kInfinity}, {kB, kInfinity}};
  params.seed = 3;
  params.presence_penalty = 1.0f;
  params.dynatemp_range = 0.5f;
  params.typical_p = 0.5f;
  for (const TokenId token : run(params, logits({}), 5)) EXPECT_TRUE(tokenizer().valid(token));
}

TEST_F(SamplerTest, InfillEndsEarly) {
  params.samplers = {infill};
  params.seed = 1;
  // The end has 0.2 of the probability: 3 * 0.2 * 11 > 0.8.
  std::vector<float> values(kCount, std::log(0.08f));
  values[kEnd] = std::log(0.2f);
  values[kTurn] = -kInfinity;
  for (const TokenId token : run(params, values, 20)) EXPECT_TRUE(tokenizer().is_eog(token));
}

TEST_F(SamplerTest, InfillCountsSpellingsOfOneTextAsOne) {
  params.samplers = {infill};
  params.seed = 1;
  std::vector<float> values(kCount, -kInfinity);
  values[kA] = std::log(0.3f);
  values[kAb] = std::log(0.4f);  // begins with "a": together 0.7
  values[kB] = std::log(0.3f);   // below 1 / (2 + 1)
  for (const TokenId token : run(params, values, 20)) EXPECT_EQ(token, kAb);
}

TEST_F(SamplerTest, InfillEndsTheTurnWhenNothingIsLikely) {
  params.samplers = {infill};
  std::vector<float> values(kCount, -kInfinity);
  for (const TokenId token : {kA, kB, kC, kColon, kColonSpace, kUnknown})
    values[static_cast<std::size_t>(token)] = 0.0f;
  EXPECT_THAT(run(params, values, 1), ElementsAre(kTurn));
}

TEST_F(SamplerTest, RefusesPenaltiesThatAreNoUsableNumbers) {
  const auto refuses = [&](auto change) {
    SamplingParams changed = params;
    change(changed);
    try {
      Sampler(changed, tokenizer());
      return false;
    } catch (const Error& error) {
      return error.kind() == ErrorKind::invalid_request;
    }
  };
  EXPECT_TRUE(refuses([](SamplingParams& p) { p.repeat_penalty = 0.0f; }));
  EXPECT_TRUE(refuses([](SamplingParams& p) { p.repeat_penalty = -1.0f; }));
  EXPECT_TRUE(refuses([](SamplingParams& p) { p.repeat_penalty = kInfinity; }));
  EXPECT_TRUE(refuses([](SamplingParams& p) { p.repeat_penalty = NAN; }));
  EXPECT_TRUE(refuses([](SamplingParams& p) { p.repeat_penalty = 1e-45f; }));  // the reciprocal is infinite
  EXPECT_TRUE(refuses([](SamplingParams& p) { p.frequency_penalty = kInfinity; }));
  EXPECT_TRUE(refuses([](SamplingParams& p) { p.presence_penalty = NAN; }));
  EXPECT_FALSE(refuses([](SamplingParams& p) { p.repeat_penalty = 1.1f; }));
}

TEST_F(SamplerTest, RefusesLogitsOfAnotherVocabulary) {
  Sampler sampler(params, tokenizer());
  EXPECT_THROW(sampler.sample(std::vector<float>(kCount - 1)), Error);
}

TEST(DryBreakers, TokensThatContainTheBreakerEndAlone) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const std::vector<std::string> strings = {":", ""};
  const DryBreakers breakers = find_dry_breakers(strings, tokenizer);
  for (TokenId id = 0; id < kCount; ++id) EXPECT_EQ(breakers.ends_alone(id), id == kColon || id == kColonSpace) << id;
}

TEST(DryBreakers, TokensThatEndWithItsBeginningHaveTheRestAsTail) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const std::vector<std::string> strings = {"bc"};
  const DryBreakers breakers = find_dry_breakers(strings, tokenizer);
  for (const TokenId head : {kB, kAb}) {
    ASSERT_NE(breakers.tails(head), nullptr);
    EXPECT_THAT(*breakers.tails(head), ElementsAre(ElementsAre(kC)));
  }
  EXPECT_EQ(breakers.tails(kA), nullptr);
}

TEST(SamplerNames, AreReadInAllSpellings) {
  const std::vector<std::string> names = {"Top_K", "top-p",     "topk",        "nucleus", "temp",    "TYP",
                                          "typ-p", "adaptivep", "top-n-sigma", "unknown", "top n k", "xtc"};
  EXPECT_THAT(parse_sampler_names(names),
              ElementsAre(top_k, top_p, top_k, top_p, temperature, typical_p, typical_p, adaptive_p, top_n_sigma, xtc));
}

TEST(SamplerNames, HaveLetters) {
  EXPECT_EQ(parse_sampler_letters("edskypmxt"), SamplingParams::default_samplers());
  EXPECT_THAT(parse_sampler_letters("i?ak"), ElementsAre(infill, adaptive_p, top_k));
}

// Each holds memory for the whole vocabulary and goes over it for every token.
TEST(SamplerNames, MakeNoEndlessList) {
  EXPECT_EQ(parse_sampler_letters(std::string(32, 'e')).size(), 32u);
  test::expect_error(ErrorKind::invalid_request, "at most 32", [] { parse_sampler_letters(std::string(33, 'e')); });
  const std::vector<std::string> names(33, "top_k");
  test::expect_error(ErrorKind::invalid_request, "at most 32", [&] { parse_sampler_names(names); });
  EXPECT_THAT(parse_sampler_letters(std::string(1000, '?')), testing::IsEmpty());
}

TEST(SamplerNames, AreShownCanonically) {
  EXPECT_EQ(sampler_name(typical_p), "typ_p");
  EXPECT_EQ(sampler_name(top_n_sigma), "top_n_sigma");
  for (const SamplerKind kind : SamplingParams::default_samplers()) {
    const std::vector<std::string> name = {std::string(sampler_name(kind))};
    EXPECT_THAT(parse_sampler_names(name), ElementsAre(kind));
  }
}

}  // namespace
}  // namespace bankml
