// Stages that look at the candidates only.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/random.hpp"
#include "engine/sampling_stage.hpp"

namespace bankml {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// A stage whose whole state is a function object.
template <class F>
class FunctionStage final : public SamplingStage {
 public:
  explicit FunctionStage(F function) : function_(std::move(function)) {}
  void apply(CandidateArray& candidates) override { function_(candidates); }

 private:
  F function_;
};

template <class F>
std::unique_ptr<SamplingStage> stage(F function) {
  return std::make_unique<FunctionStage<F>>(std::move(function));
}

void apply_top_n_sigma(CandidateArray& candidates, float n) {
  if (candidates.size() <= 1) return;
  float max = kNever, sum = 0.0f;
  std::size_t count = 0;
  candidates.for_each([&](TokenId, const float& logit) {
    if (logit == kNever) return;
    max = std::max(max, logit);
    sum += logit;
    ++count;
  });
  const float mean = count > 0 ? sum / static_cast<float>(count) : 0.0f;
  float squares = 0.0f;
  candidates.for_each([&](TokenId, const float& logit) {
    if (logit != kNever) squares += (logit - mean) * (logit - mean);
  });
  const float deviation = count > 0 ? std::sqrt(squares / static_cast<float>(count)) : 0.0f;
  const float least = max - n * deviation;
  candidates.for_each([&](TokenId, float& logit) {
    if (logit < least) logit = kNever;
  });
}

struct Typical {
  float mass;
  std::size_t min_keep;
  struct Scored {
    float score;
    Candidate candidate;
  };
  std::vector<Scored> scored{};  // kept for its memory

  void operator()(CandidateArray& candidates) {
    candidates.sort_and_softmax();
    float entropy = 0.0f;
    for (const Candidate& candidate : candidates.items()) {
      if (candidate.p > 0.0f) entropy += -candidate.p * std::log(candidate.p);
    }
    scored.clear();
    for (const Candidate& candidate : candidates.items()) {
      const float score = std::fabs(-std::log(candidate.p) - entropy);
      // NaN (of logits that aren't numbers) would break the sort.
      scored.push_back({std::isnan(score) ? std::numeric_limits<float>::infinity() : score, candidate});
    }
    std::sort(scored.begin(), scored.end(), [](const Scored& a, const Scored& b) { return a.score < b.score; });
    float sum = 0.0f;
    std::size_t kept = 0;
    while (kept < scored.size()) {
      candidates.items()[kept] = scored[kept].candidate;
      sum += scored[kept++].candidate.p;
      if (sum > mass && (min_keep == 0 || kept >= min_keep)) break;
    }
    candidates.cut(kept);
    candidates.set_sorted(false);
  }
};

// How many of the most likely reach the mass; 0 if all of them together don't.
std::size_t count_reaching(std::span<const Candidate> descending, float mass, std::size_t min_keep) {
  float sum = 0.0f;
  for (std::size_t i = 0; i < descending.size(); ++i) {
    sum += descending[i].p;
    if (sum >= mass && i + 1 >= min_keep) return i + 1;
  }
  return 0;
}

void apply_top_p(CandidateArray& candidates, float mass, std::size_t min_keep) {
  constexpr std::size_t kHead = 256,
                        kGrowth = 8;  // sorting a whole vocabulary takes milliseconds, a head is mostly enough
  candidates.softmax();
  for (std::size_t head = kHead; !candidates.sorted() && head < candidates.size(); head *= kGrowth) {
    if (const std::size_t kept = count_reaching(candidates.peek_top(head), mass, min_keep)) {
      return candidates.take_peeked(kept);
    }
  }
  candidates.sort();
  if (const std::size_t kept = count_reaching(candidates.items(), mass, min_keep)) candidates.cut(kept);
}

void apply_min_p(CandidateArray& candidates, float min_p, std::size_t min_keep) {
  if (candidates.size() == 0) return;
  const float least = candidates.max_logit() + std::log(min_p);
  if (!candidates.sorted()) {
    const auto enough = [least](const Candidate& candidate) { return candidate.logit >= least; };
    const std::span<const Candidate> all = candidates.items();
    const auto kept = static_cast<std::size_t>(std::count_if(all.begin(), all.end(), enough));
    if (kept >= std::max<std::size_t>(1, min_keep)) return candidates.filter(enough);
    candidates.sort();
  }
  const std::span<const Candidate> all = candidates.items();
  std::size_t kept = 1;
  while (kept < all.size() && !(all[kept].logit < least && kept >= min_keep)) ++kept;
  candidates.cut(kept);
}

struct Xtc {
  float probability, threshold;
  std::size_t min_keep;
  RandomEngine random;

  void operator()(CandidateArray& candidates) {
    if (candidates.size() < 2) return;
    if (random.uniform_float() > probability) return;
    candidates.sort_and_softmax();
    const std::span<Candidate> all = candidates.items();
    std::size_t above = 0;
    while (above < all.size() && all[above].p >= threshold) ++above;
    if (above < 2) return;
    const std::size_t dropped = above - 1;  // the least likely of those above the threshold stays
    if (all.size() - dropped < min_keep) return;
    std::copy(all.begin() + static_cast<std::ptrdiff_t>(dropped), all.end(), all.begin());
    candidates.cut(all.size() - dropped);
  }
};

// A logit of -infinity stays what it is under the highest finite temperature; divided by infinity it would be NaN.
float finite(float temperature) noexcept {
  return std::min(temperature, std::numeric_limits<float>::max());
}

void scale_by_temperature(CandidateArray& candidates, float temperature) {
  if (temperature > 0.0f) {
    candidates.for_each([temperature](TokenId, float& logit) { logit /= temperature; });
    return;
  }
  // The first of the greatest stays, in array order.
  bool first = true;
  float* best = nullptr;
  candidates.for_each([&](TokenId, float& logit) {
    if (first || logit > *best) {
      if (!first) *best = kNever;
      best = &logit;
      first = false;
    } else {
      logit = kNever;
    }
  });
}

struct DynamicTemperature {
  float temperature, range, exponent;

  void operator()(CandidateArray& candidates) const {
    if (candidates.size() <= 1) return;
    const float low = std::max(0.0f, temperature - range), high = temperature + range;
    candidates.sort_and_softmax();
    float entropy = 0.0f;
    for (const Candidate& candidate : candidates.items()) {
      if (candidate.p > 0.0f) entropy -= candidate.p * std::log(candidate.p);
    }
    const float max_entropy = -std::log(1.0f / static_cast<float>(candidates.size()));
    scale_by_temperature(candidates, low + (high - low) * std::pow(entropy / max_entropy, exponent));
  }
};

std::size_t min_keep_of(const SamplingParams& params) {
  return static_cast<std::size_t>(std::max(params.min_keep, 0));
}

}  // namespace

std::unique_ptr<SamplingStage> make_top_n_sigma(const SamplingParams& params) {
  if (!(params.top_n_sigma > 0.0f)) return nullptr;
  return stage([n = params.top_n_sigma](CandidateArray& candidates) { apply_top_n_sigma(candidates, n); });
}

std::unique_ptr<SamplingStage> make_top_k(const SamplingParams& params) {
  if (params.top_k <= 0) return nullptr;
  return stage([k = static_cast<std::size_t>(params.top_k)](CandidateArray& candidates) { candidates.keep_top(k); });
}

std::unique_ptr<SamplingStage> make_typical(const SamplingParams& params) {
  if (params.typical_p >= 1.0f) return nullptr;
  return stage(Typical{params.typical_p, min_keep_of(params)});
}

std::unique_ptr<SamplingStage> make_top_p(const SamplingParams& params) {
  if (params.top_p >= 1.0f) return nullptr;
  return stage(
      [p = params.top_p, k = min_keep_of(params)](CandidateArray& candidates) { apply_top_p(candidates, p, k); });
}

std::unique_ptr<SamplingStage> make_min_p(const SamplingParams& params) {
  if (!(params.min_p > 0.0f)) return nullptr;
  return stage(
      [p = params.min_p, k = min_keep_of(params)](CandidateArray& candidates) { apply_min_p(candidates, p, k); });
}

std::unique_ptr<SamplingStage> make_xtc(const SamplingParams& params) {
  constexpr float kGreatestThreshold = 0.5f;  // above it no two tokens can be
  if (!(params.xtc_probability > 0.0f) || params.xtc_threshold > kGreatestThreshold) return nullptr;
  return stage(Xtc{params.xtc_probability, params.xtc_threshold, min_keep_of(params), RandomEngine(params.seed)});
}

std::unique_ptr<SamplingStage> make_plain_temperature(float temperature) {
  if (temperature == 1.0f) return nullptr;
  temperature = finite(temperature);
  return stage([temperature](CandidateArray& candidates) { scale_by_temperature(candidates, temperature); });
}

std::unique_ptr<SamplingStage> make_temperature(const SamplingParams& params) {
  if (!(params.dynatemp_range > 0.0f)) return make_plain_temperature(params.temperature);
  return stage(DynamicTemperature{finite(params.temperature), params.dynatemp_range, params.dynatemp_exponent});
}

}  // namespace bankml
