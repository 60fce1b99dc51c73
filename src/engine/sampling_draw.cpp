// Selectors: how one of the remaining candidates is taken.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/random.hpp"
#include "engine/sampling_stage.hpp"

namespace bankml {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

class Draw final : public Selector {
 public:
  explicit Draw(std::uint32_t seed) : random_(seed) {}

  std::size_t select(CandidateArray& candidates) override {
    const std::span<Candidate> all = candidates.items();
    const double u = random_.uniform_double();  // drawn even where there is no choice
    if (all.size() == 1) {
      all[0].p = 1.0f;
      return 0;
    }
    const float max = candidates.max_logit();
    double sum = 0.0;
    for (Candidate& candidate : all) {
      candidate.p = candidate.logit == kNever ? 0.0f : std::exp(candidate.logit - max);
      sum += static_cast<double>(candidate.p);
    }
    const double target = sum * u;
    double running = 0.0;
    std::size_t chosen = all.size() - 1;
    for (std::size_t i = 0; i < all.size(); ++i) {
      running += static_cast<double>(all[i].p);
      if (running >= target) {
        chosen = i;
        break;
      }
    }
    for (Candidate& candidate : all) candidate.p = static_cast<float>(static_cast<double>(candidate.p) / sum);
    return chosen;
  }

 private:
  RandomEngine random_;
};

// An index with the probabilities p, as std::discrete_distribution of libstdc++ takes it; no draw where there is no
// choice.
std::size_t draw_discrete(std::span<const Candidate> all, RandomEngine& random) {
  if (all.size() < 2) return 0;
  double sum = 0.0;
  for (const Candidate& candidate : all) sum += static_cast<double>(candidate.p);
  const double u = random.uniform_double();
  double cumulative = 0.0;
  for (std::size_t i = 0; i + 1 < all.size(); ++i) {
    cumulative += static_cast<double>(all[i].p) / sum;
    if (cumulative >= u) return i;
  }
  return all.size() - 1;
}

// Keeps the surprise of the chosen tokens near tau (Basu et al. 2021, "Mirostat").
class Mirostat final : public Selector {
 public:
  Mirostat(const SamplingParams& params, std::size_t vocab)
      : version_(params.mirostat),
        tau_(params.mirostat_tau),
        eta_(params.mirostat_eta),
        mu_(2.0f * params.mirostat_tau),
        vocab_(static_cast<float>(vocab)),
        random_(params.seed) {}

  std::size_t select(CandidateArray& candidates) override {
    candidates.sort_and_softmax();
    if (version_ == 1) {
      candidates.keep_top(count_by_zipf(candidates.items()));
    } else {
      candidates.cut(count_by_surprise(candidates.items()));
    }
    candidates.softmax();
    const std::span<const Candidate> all = candidates.items();
    const std::size_t chosen = draw_discrete(all, random_);
    const float error = -std::log2(all[chosen].p) - tau_;
    mu_ -= eta_ * error;
    return chosen;
  }

 private:
  std::size_t count_by_surprise(std::span<const Candidate> all) const {
    std::size_t kept = 1;
    while (kept < all.size() && !(-std::log2(all[kept].p) > mu_)) ++kept;
    return kept;
  }

  // The paper's first algorithm: the exponent of Zipf's law from the likeliest tokens, then the top-k that gives
  // surprise mu.
  std::size_t count_by_zipf(std::span<const Candidate> all) const {
    constexpr std::size_t kPairs = 99;
    constexpr float kTooMany = 2147483648.0f;
    float sum_tb = 0.0f, sum_tt = 0.0f;
    for (std::size_t i = 0; i < std::min(kPairs, all.size() - 1); ++i) {
      const float t = std::log(static_cast<float>(i + 2) / static_cast<float>(i + 1));
      const float b = std::log(all[i].p / all[i + 1].p);
      sum_tb += t * b;
      sum_tt += t * t;
    }
    const float s = sum_tb / sum_tt;
    const float epsilon = s - 1.0f;
    const float k = std::pow((epsilon * std::pow(2.0f, mu_)) / (1.0f - std::pow(vocab_, -epsilon)), 1.0f / s);
    // Not a number, or one that is no int, keeps one token.
    return k >= 1.0f && k < kTooMany ? static_cast<std::size_t>(k) : 1;
  }

  int version_;
  float tau_, eta_, mu_, vocab_;
  RandomEngine random_;
};

// Steers the probability of the chosen tokens towards a target, by a decaying mean of what was chosen.
class AdaptiveP final : public Selector {
 public:
  explicit AdaptiveP(const SamplingParams& params)
      : target_(params.adaptive_target),
        decay_(std::clamp(params.adaptive_decay, 0.0f, 0.99f)),
        sum_(target_ / (1.0f - decay_)),
        weight_(1.0f / (1.0f - decay_)),
        random_(params.seed) {}

  std::size_t select(CandidateArray& candidates) override {
    candidates.softmax();
    const std::span<Candidate> all = candidates.items();
    if (target_ < 0.0f) return draw_discrete(all, random_);
    original_.clear();
    for (const Candidate& candidate : all) original_.push_back(candidate.p);
    const float target = std::clamp(target_, 0.0f, 1.0f);
    const float adapted = weight_ == 0.0f ? target : std::clamp(2.0f * target - sum_ / weight_, 0.0f, 1.0f);
    for (Candidate& candidate : all) {
      constexpr float kWidth = 0.3f, kPeak = 5.0f, kSharpness = 10.0f;
      if (candidate.logit == kNever) continue;
      const float d = std::fabs(candidate.p - adapted) / kWidth;
      candidate.logit = kPeak - kSharpness * d * d / (1.0f + d);
    }
    candidates.set_sorted(false);
    candidates.softmax();
    const std::size_t chosen = draw_discrete(all, random_);
    pending_ = all[chosen].id;
    pending_p_ = original_[chosen];
    return chosen;
  }

  void accept(TokenId token) override {
    if (token != pending_) return;
    sum_ = pending_p_ + decay_ * sum_;
    weight_ = 1.0f + decay_ * weight_;
    pending_ = kNone;
  }

 private:
  static constexpr TokenId kNone = -1;
  float target_, decay_, sum_, weight_;
  RandomEngine random_;
  std::vector<float> original_;
  TokenId pending_ = kNone;
  float pending_p_ = 0.0f;
};

}  // namespace

std::unique_ptr<Selector> make_draw(const SamplingParams& params) {
  return std::make_unique<Draw>(params.seed);
}

std::unique_ptr<Selector> make_mirostat(const SamplingParams& params, std::size_t vocab) {
  return std::make_unique<Mirostat>(params, vocab);
}

std::unique_ptr<Selector> make_adaptive_p(const SamplingParams& params) {
  return std::make_unique<AdaptiveP>(params);
}

}  // namespace bankml
