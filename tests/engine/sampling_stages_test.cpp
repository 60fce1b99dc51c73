#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "engine/dry.hpp"
#include "engine/random.hpp"
#include "engine/sampling_stage.hpp"

// docs/sampling.md, section 3, on arrays small enough to compute by hand.
namespace bankml {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::IsEmpty;
using ::testing::Pointwise;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<TokenId> ids(CandidateArray& candidates) {
  std::vector<TokenId> out;
  for (const Candidate& candidate : candidates.items()) out.push_back(candidate.id);
  return out;
}

std::vector<float> logits_of(CandidateArray& candidates) {
  std::vector<float> out;
  for (const Candidate& candidate : candidates.items()) out.push_back(candidate.logit);
  return out;
}

std::vector<float> probabilities(CandidateArray& candidates) {
  std::vector<float> out;
  for (const Candidate& candidate : candidates.items()) out.push_back(candidate.p);
  return out;
}

std::vector<float> logs(std::vector<float> values) {
  for (float& value : values) value = std::log(value);
  return values;
}

// Values with many ties, as quantised models give them rarely and tests often.
std::vector<float> random_logits(std::size_t n, std::uint32_t seed, int steps) {
  std::mt19937 engine(seed);
  std::vector<float> out(n);
  for (float& value : out) value = 0.25f * (static_cast<float>(engine() % static_cast<unsigned>(steps)) - 30.0f);
  return out;
}

std::vector<Candidate> in_id_order(const std::vector<float>& logits) {
  std::vector<Candidate> out;
  for (std::size_t i = 0; i < logits.size(); ++i) out.push_back({static_cast<TokenId>(i), logits[i], 0.0f});
  return out;
}

TEST(CandidateArray, KeepsTheTopLikePartialSortAlsoAmongEqualLogits) {
  for (const std::size_t n : {1u, 40u, 41u, 100u, 1000u, 4099u}) {
    for (const std::size_t k : {1u, 2u, 40u, 128u}) {
      const std::vector<float> logits = random_logits(n, static_cast<std::uint32_t>(n + k), 40);
      std::vector<Candidate> expected = in_id_order(logits);
      const std::size_t kept = std::min(k, n);
      std::partial_sort(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(kept), expected.end(),
                        [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
      CandidateArray candidates;
      candidates.assign(logits);
      candidates.keep_top(k);
      ASSERT_EQ(candidates.size(), kept);
      for (std::size_t i = 0; i < kept; ++i)
        EXPECT_EQ(candidates.items()[i].id, expected[i].id) << n << " " << k << " " << i;
    }
  }
}

TEST(CandidateArray, SortsAWholeVocabularyByBuckets) {
  std::vector<float> logits = random_logits(3000, 5, 400);
  logits[7] = -kInfinity;
  logits[8] = kInfinity;
  CandidateArray candidates;
  candidates.assign(logits);
  candidates.sort();
  std::vector<float> expected = logits;
  std::sort(expected.begin(), expected.end(), std::greater<>());
  EXPECT_EQ(logits_of(candidates), expected);
  std::vector<TokenId> seen = ids(candidates), all(3000);
  std::sort(seen.begin(), seen.end());
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
}

TEST(CandidateArray, SurvivesLogitsThatAreNotNumbers) {
  std::vector<float> logits = random_logits(3000, 5, 400);
  for (std::size_t i = 0; i < logits.size(); i += 3) logits[i] = std::numeric_limits<float>::quiet_NaN();
  CandidateArray candidates;
  candidates.assign(logits);
  candidates.sort();
  EXPECT_EQ(candidates.size(), 3000u);
  candidates.assign(logits);
  candidates.keep_top(40);
  EXPECT_EQ(candidates.size(), 40u);
}

TEST(CandidateArray, SoftmaxDividesByTheFloatSum) {
  CandidateArray candidates;
  const std::vector<float> logits = logs({0.125f, 0.5f, 0.375f});
  candidates.assign(logits);
  candidates.softmax();
  EXPECT_THAT(probabilities(candidates), Pointwise(FloatNear(1e-6f), {0.125f, 0.5f, 0.375f}));
}

// The stages, each on a small array.
class Stages : public ::testing::Test {
 protected:
  void start(std::vector<float> logits) {
    logits_ = std::move(logits);
    candidates.assign(logits_);
  }
  void apply(const std::unique_ptr<SamplingStage>& stage) {
    ASSERT_NE(stage, nullptr);
    stage->apply(candidates);
  }

  SamplingParams params;
  CandidateArray candidates;

 private:
  std::vector<float> logits_;
};

TEST_F(Stages, AreNotThereWhenOff) {
  params.top_k = 0;
  params.top_p = 1.0f;
  params.min_p = 0.0f;
  params.temperature = 1.0f;
  EXPECT_EQ(make_penalties(params, 10), nullptr);
  EXPECT_EQ(make_top_n_sigma(params), nullptr);
  EXPECT_EQ(make_top_k(params), nullptr);
  EXPECT_EQ(make_typical(params), nullptr);
  EXPECT_EQ(make_top_p(params), nullptr);
  EXPECT_EQ(make_min_p(params), nullptr);
  EXPECT_EQ(make_xtc(params), nullptr);
  EXPECT_EQ(make_temperature(params), nullptr);
  EXPECT_FALSE(dry_is_on(params));
  params.xtc_probability = 1.0f;
  params.xtc_threshold = 0.51f;
  EXPECT_EQ(make_xtc(params), nullptr);
  params.repeat_penalty = 1.5f;
  params.repeat_last_n = 0;
  EXPECT_EQ(make_penalties(params, 10), nullptr);
}

TEST_F(Stages, PenaltiesWeighEachTokenByItsCount) {
  params.repeat_penalty = 2.0f;
  params.frequency_penalty = 0.5f;
  params.presence_penalty = 0.25f;
  const auto stage = make_penalties(params, 4);
  for (const TokenId token : {1, 2, 1}) stage->accept(token);
  start({1.0f, 4.0f, -3.0f, -1.0f});
  apply(stage);
  // 4 / 2 - (2 * 0.5 + 0.25); -3 * 2 - (1 * 0.5 + 0.25)
  EXPECT_THAT(logits_of(candidates), ElementsAre(1.0f, 0.75f, -6.75f, -1.0f));
}

TEST_F(Stages, PenaltiesForgetWhatHasLeftTheWindow) {
  params.presence_penalty = 1.0f;
  params.repeat_last_n = 2;
  const auto stage = make_penalties(params, 4);
  for (const TokenId token : {0, 1, 2}) stage->accept(token);
  start({5.0f, 5.0f, 5.0f, 5.0f});
  apply(stage);
  EXPECT_THAT(logits_of(candidates), ElementsAre(5.0f, 4.0f, 4.0f, 5.0f));
}

TEST_F(Stages, PenaltiesWorkOnWhatTopKHasLeft) {
  params.presence_penalty = 10.0f;
  const auto stage = make_penalties(params, 4);
  stage->accept(3);
  start({1.0f, 2.0f, 3.0f, 4.0f});
  candidates.keep_top(2);
  apply(stage);
  EXPECT_THAT(ids(candidates), ElementsAre(3, 2));
  EXPECT_THAT(logits_of(candidates), ElementsAre(-6.0f, 3.0f));
  EXPECT_FALSE(candidates.sorted());
}

TEST_F(Stages, TopNSigmaRemovesWhatIsFarBelowTheBest) {
  params.top_n_sigma = 1.0f;
  start({4.0f, 2.0f, 0.0f, 2.0f, -kInfinity});
  apply(make_top_n_sigma(params));
  // Mean 2, standard deviation sqrt(8 / 4) = 1.414: below 2.586 goes.
  EXPECT_THAT(logits_of(candidates), ElementsAre(4.0f, -kInfinity, -kInfinity, -kInfinity, -kInfinity));
}

TEST_F(Stages, TopKSortsAndKeeps) {
  params.top_k = 2;
  start({1.0f, 3.0f, 2.0f});
  apply(make_top_k(params));
  EXPECT_THAT(ids(candidates), ElementsAre(1, 2));
  EXPECT_TRUE(candidates.sorted());
}

TEST_F(Stages, TypicalKeepsTheLeastSurprisingMass) {
  params.typical_p = 0.5f;
  start(logs({0.4f, 0.3f, 0.2f, 0.1f}));
  apply(make_typical(params));
  // Entropy 1.2799; distances of the surprises 0.916, 1.204, 1.609, 2.303 from it: 0.363, 0.076, 0.330, 1.023.
  EXPECT_THAT(ids(candidates), ElementsAre(1, 2, 0));  // 0.3 + 0.2 is not more than 0.5
  EXPECT_FALSE(candidates.sorted());
}

TEST_F(Stages, TypicalKeepsAtLeastMinKeep) {
  params.typical_p = 0.2f;
  params.min_keep = 2;
  start(logs({0.4f, 0.3f, 0.2f, 0.1f}));
  apply(make_typical(params));
  EXPECT_THAT(ids(candidates), ElementsAre(1, 2));
}

TEST_F(Stages, TopPStopsWhereTheMassIsReached) {
  params.top_p = 0.75f;
  start(logs({0.125f, 0.25f, 0.5f, 0.125f}));
  apply(make_top_p(params));
  EXPECT_THAT(ids(candidates), ElementsAre(2, 1));
  EXPECT_TRUE(candidates.sorted());
}

TEST_F(Stages, TopPKeepsAtLeastMinKeep) {
  params.top_p = 0.1f;
  params.min_keep = 3;
  start(logs({0.1f, 0.25f, 0.5f, 0.15f}));
  apply(make_top_p(params));
  EXPECT_THAT(ids(candidates), ElementsAre(2, 1, 3));
}

TEST_F(Stages, TopPFindsTheHeadOfALargeVocabulary) {
  params.top_p = 0.5f;
  std::vector<float> logits(5000, -20.0f);
  logits[4000] = 5.0f;
  logits[77] = 5.0f;
  logits[78] = 4.0f;
  start(logits);
  apply(make_top_p(params));
  // e^5 twice and e^4 once: 0.422, 0.845.
  EXPECT_THAT(ids(candidates), ::testing::UnorderedElementsAre(77, 4000));
}

TEST_F(Stages, TopPSortsAllOfAFlatVocabulary) {
  params.top_p = 0.5f;
  start(std::vector<float>(1024, 1.0f));
  apply(make_top_p(params));
  EXPECT_EQ(candidates.size(), 512u);
}

TEST_F(Stages, MinPFiltersWithoutSorting) {
  params.min_p = 0.5f;
  start({1.0f, 1.9f, 2.0f, 1.4f});  // threshold 2 - 0.693
  apply(make_min_p(params));
  EXPECT_THAT(ids(candidates), ElementsAre(1, 2, 3));
}

TEST_F(Stages, MinPKeepsMinKeepOfTheSorted) {
  params.min_p = 0.5f;
  params.min_keep = 4;
  start({1.0f, 1.9f, 2.0f, 1.4f, 0.0f});
  apply(make_min_p(params));
  EXPECT_THAT(ids(candidates), ElementsAre(2, 1, 3, 0));
}

TEST_F(Stages, XtcDropsAllButTheLastAboveTheThreshold) {
  params.xtc_probability = 1.0f;
  params.xtc_threshold = 0.2f;
  params.seed = 1;
  start(logs({0.1f, 0.35f, 0.3f, 0.25f}));
  apply(make_xtc(params));
  EXPECT_THAT(ids(candidates), ElementsAre(3, 0));
}

TEST_F(Stages, XtcActsOnlyIfItsDrawIsNotAboveTheProbability) {
  params.xtc_threshold = 0.2f;
  params.seed = 42;
  const float first = RandomEngine(42).uniform_float();
  const std::vector<float> logits = logs({0.1f, 0.35f, 0.3f, 0.25f});
  params.xtc_probability = std::nextafter(first, 0.0f);
  start(logits);
  apply(make_xtc(params));
  EXPECT_EQ(candidates.size(), 4u);
  params.xtc_probability = first;
  start(logits);
  apply(make_xtc(params));
  EXPECT_EQ(candidates.size(), 2u);
}

TEST_F(Stages, TemperatureDivides) {
  params.temperature = 0.5f;
  start({1.0f, -2.0f});
  apply(make_temperature(params));
  EXPECT_THAT(logits_of(candidates), ElementsAre(2.0f, -4.0f));
}

TEST_F(Stages, TemperatureZeroKeepsTheFirstOfTheGreatest) {
  params.temperature = 0.0f;
  start({1.0f, 3.0f, 2.0f, 3.0f});
  apply(make_temperature(params));
  EXPECT_THAT(logits_of(candidates), ElementsAre(-kInfinity, 3.0f, -kInfinity, -kInfinity));
}

TEST_F(Stages, DynamicTemperatureFollowsTheEntropy) {
  params.temperature = 1.0f;
  params.dynatemp_range = 0.5f;
  start({2.0f, 2.0f});  // entropy at its greatest: 1.5
  apply(make_temperature(params));
  EXPECT_THAT(logits_of(candidates), Pointwise(FloatEq(), {2.0f / 1.5f, 2.0f / 1.5f}));
  start({90.0f, -90.0f});  // no entropy: 0.5
  apply(make_temperature(params));
  EXPECT_THAT(logits_of(candidates), Pointwise(FloatEq(), {180.0f, -180.0f}));
}

// DRY with the tokens as letters; the breakers are given directly.
class DryStage : public ::testing::Test {
 protected:
  DryStage() {
    params.dry_multiplier = 1.0f;
    params.dry_base = 2.0f;
    params.dry_allowed_length = 2;
  }
  // The logits after DRY, from zeros.
  std::vector<float> penalised(const std::vector<TokenId>& tokens) {
    const auto stage = make_dry(params, 10, breakers);
    for (const TokenId token : tokens) stage->accept(token);
    const std::vector<float> zeros(10, 0.0f);
    CandidateArray candidates;
    candidates.assign(zeros);
    stage->apply(candidates);
    return logits_of(candidates);
  }
  static std::vector<float> only(TokenId token, float logit) {
    std::vector<float> out(10, 0.0f);
    out[static_cast<std::size_t>(token)] = logit;
    return out;
  }

  SamplingParams params;
  DryBreakers breakers;
};

TEST_F(DryStage, LowersWhatContinuedTheSameSequenceBefore) {
  EXPECT_EQ(penalised({1, 2, 3, 1, 2}), only(3, -1.0f));          // match 2: 2^0
  EXPECT_EQ(penalised({5, 1, 2, 3, 5, 1, 2}), only(3, -2.0f));    // match 3: 2^1
  EXPECT_EQ(penalised({6, 2, 3, 1, 2}), std::vector<float>(10));  // match 1: allowed
}

TEST_F(DryStage, TakesTheLongestMatchOfAToken) {
  EXPECT_EQ(penalised({5, 1, 2, 3, 9, 1, 2, 3, 5, 1, 2}), only(3, -2.0f));
}

TEST_F(DryStage, CountsOverlappingRepetitions) {
  // After 1 1 1 1 another 1 would continue matches of 3 and less.
  EXPECT_EQ(penalised({1, 1, 1, 1}), only(1, -2.0f));
}

TEST_F(DryStage, LooksBackNoFurtherThanABreaker) {
  breakers.add(5, {});
  EXPECT_EQ(penalised({5, 1, 2, 3, 5, 1, 2}), only(3, -1.0f));  // two tokens since the 5
  EXPECT_EQ(penalised({1, 2, 3, 1, 5, 2}), std::vector<float>(10));
}

TEST_F(DryStage, TakesABreakerOfSeveralTokens) {
  breakers.add(5, {1});
  // The breaker 5 1 ends before the last two tokens.
  EXPECT_EQ(penalised({4, 1, 2, 3, 7, 5, 1, 1, 2}), only(3, -1.0f));
  EXPECT_EQ(penalised({5, 2, 2, 3, 7, 5, 2, 2}), only(3, -2.0f));  // 5 alone breaks nothing
}

TEST_F(DryStage, NeverLowersABreaker) {
  breakers.add(3, {});
  EXPECT_EQ(penalised({1, 2, 3, 1, 2}), std::vector<float>(10));
}

TEST_F(DryStage, SeesItsWindowOnly) {
  params.dry_penalty_last_n = 4;
  EXPECT_EQ(penalised({1, 2, 3, 1, 2}), std::vector<float>(10));
}

TEST_F(DryStage, KeepsThePenaltyFinite) {
  params.dry_base = 10.0f;
  params.dry_penalty_last_n = 1000;
  const std::vector<float> logits = penalised(std::vector<TokenId>(200, 1));
  EXPECT_THAT(logits[1], FloatNear(-1e38f, 1e33f));  // floor(88.72 / ln 10) = 38
}

TEST(RandomEngine, TakesTheUpperHalfFromTheSecondOutput) {
  // The first outputs of the Mersenne Twister for the seed 5489 (Matsumoto and Nishimura's reference).
  RandomEngine engine(5489);
  EXPECT_EQ(engine.uniform_double(), (3499211612.0 + 581869302.0 * 4294967296.0) / 18446744073709551616.0);
  EXPECT_EQ(engine.uniform_float(), static_cast<float>(3890346734u) / 4294967296.0f);
}

TEST(Draw, TakesTheFirstWhoseRunningSumReachesTheTarget) {
  SamplingParams params;
  params.seed = 5489;  // u = 0.13547...
  const auto draw = make_draw(params);
  const std::vector<float> logits = logs({0.125f, 0.5f, 0.375f});
  CandidateArray candidates;
  candidates.assign(logits);
  EXPECT_EQ(draw->select(candidates), 1u);
  EXPECT_THAT(probabilities(candidates), Pointwise(FloatNear(1e-6f), {0.125f, 0.5f, 0.375f}));
}

TEST(Draw, ConsumesItsNumbersEvenWithoutAChoice) {
  SamplingParams params;
  params.seed = 5489;
  const auto draw = make_draw(params);
  CandidateArray candidates;
  const std::vector<float> one = {3.0f}, two = {0.0f, 0.0f};
  candidates.assign(one);
  EXPECT_EQ(draw->select(candidates), 0u);
  EXPECT_THAT(probabilities(candidates), ElementsAre(1.0f));
  RandomEngine engine(5489);
  engine.uniform_double();
  for (int i = 0; i < 20; ++i) {
    candidates.assign(two);
    EXPECT_EQ(draw->select(candidates), engine.uniform_double() <= 0.5 ? 0u : 1u);
  }
}

TEST(Mirostat, Version2CutsAtTheSurpriseAndLearnsFromIt) {
  SamplingParams params;
  params.mirostat = 2;
  params.mirostat_tau = 1.0f;  // mu = 2 bits
  params.mirostat_eta = 1.0f;
  params.seed = 5489;
  const auto mirostat = make_mirostat(params, 4);
  const std::vector<float> logits = logs({0.125f, 0.5f, 0.25f, 0.125f});
  CandidateArray candidates;
  candidates.assign(logits);
  // Surprises 1, 2, 3, 3: the first two stay, with 2/3 and 1/3; u = 0.135 takes the first.
  EXPECT_EQ(mirostat->select(candidates), 0u);
  EXPECT_EQ(candidates.size(), 2u);
  EXPECT_THAT(probabilities(candidates), Pointwise(FloatNear(1e-5f), {2.0f / 3, 1.0f / 3}));
  // e = 0.585 - 1, mu = 2.415: again two. Then it has no reason to shrink below one.
  candidates.assign(logits);
  mirostat->select(candidates);
  EXPECT_EQ(candidates.size(), 2u);
}

TEST(Mirostat, Version1KeepsTheTopKOfZipfsLaw) {
  SamplingParams params;
  params.mirostat = 1;
  params.mirostat_tau = 1.0f;
  params.seed = 1;
  const auto mirostat = make_mirostat(params, 4);
  // p_i = c / (i+1)^2: s = 2, epsilon = 1; k = ((1 * 2^2) / (1 - 4^-1))^(1/2) = sqrt(16/3) = 2.3.
  const std::vector<float> logits = logs({1.0f, 1.0f / 4, 1.0f / 9, 1.0f / 16});
  CandidateArray candidates;
  candidates.assign(logits);
  mirostat->select(candidates);
  EXPECT_EQ(candidates.size(), 2u);
}

TEST(AdaptiveP, DrawsPlainlyBelowZero) {
  SamplingParams params;
  params.adaptive_target = -1.0f;
  params.seed = 5489;
  const auto adaptive = make_adaptive_p(params);
  const std::vector<float> logits = logs({0.125f, 0.5f, 0.375f});
  CandidateArray candidates;
  candidates.assign(logits);
  EXPECT_EQ(adaptive->select(candidates), 1u);
}

TEST(AdaptiveP, FavoursProbabilitiesNearTheTarget) {
  SamplingParams params;
  params.adaptive_target = 0.25f;
  params.seed = 5489;
  const auto adaptive = make_adaptive_p(params);
  const std::vector<float> logits = logs({0.7f, 0.25f, 0.05f});
  CandidateArray candidates;
  candidates.assign(logits);
  adaptive->select(candidates);
  // The start values make the adapted target 2 * 0.25 - 0.25. d = 1.5, 0, 2/3: logits -4, 5, 2.333.
  EXPECT_THAT(logits_of(candidates),
              Pointwise(FloatNear(1e-4f), {-4.0f, 5.0f, 5.0f - 10.0f * (4.0f / 9) / (5.0f / 3)}));
}

TEST(AdaptiveP, MovesTheTargetAwayFromWhatWasAccepted) {
  SamplingParams params;
  params.adaptive_target = 0.5f;
  params.adaptive_decay = 0.0f;  // only the last token counts
  params.seed = 3;
  const auto adaptive = make_adaptive_p(params);
  const std::vector<float> logits = {0.0f};
  CandidateArray candidates;
  candidates.assign(logits);
  adaptive->select(candidates);
  adaptive->accept(0);  // p 1: the next target is 2 * 0.5 - 1 = 0
  candidates.assign(logits);
  adaptive->select(candidates);
  const float d = 1.0f / 0.3f;
  EXPECT_THAT(logits_of(candidates), Pointwise(FloatNear(1e-4f), {5.0f - 10.0f * d * d / (1.0f + d)}));
}

// The straightforward form of docs/arithmetic.md, 4.1.
std::vector<Candidate> plain_top_logprobs(const std::vector<float>& logits, std::size_t n, TokenId chosen) {
  std::vector<Candidate> all = in_id_order(logits);
  std::partial_sort(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n), all.end(),
                    [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  float sum = 0.0f;
  for (const Candidate& candidate : all) sum += std::exp(candidate.logit - all[0].logit);
  const auto p = [&](float logit) { return std::log(std::exp(logit - all[0].logit) / sum); };
  std::vector<Candidate> out(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(n));
  for (Candidate& candidate : out) candidate.p = p(candidate.logit);
  const float logit = logits[static_cast<std::size_t>(chosen)];
  out.push_back({chosen, logit, p(logit)});
  return out;
}

TEST(TopLogprobs, SumInTheOrderThatPartialSortLeaves) {
  std::mt19937 engine(11);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  for (const std::size_t n : {1u, 5u, 20u, 300u}) {
    std::vector<float> logits(3001);
    for (float& value : logits) value = normal(engine);
    const auto expected = plain_top_logprobs(logits, n, 17);
    const auto got = top_logprobs(logits, n, 17);
    ASSERT_EQ(got.size(), n + 1);
    for (std::size_t i = 0; i <= n; ++i) {
      EXPECT_EQ(got[i].id, expected[i].id);
      EXPECT_EQ(got[i].p, expected[i].p);
    }
  }
}

TEST(TopLogprobs, GiveNoMoreThanThereAre) {
  const std::vector<float> logits = {0.0f, 0.0f};
  const auto top = top_logprobs(logits, 10, 1);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top.back().id, 1);
  EXPECT_FLOAT_EQ(top.back().p, std::log(0.5f));
}

}  // namespace
}  // namespace bankml
