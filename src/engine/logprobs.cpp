#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/candidates.hpp"

namespace bankml {

std::vector<Candidate> top_logprobs(std::span<const float> logits, std::size_t n, TokenId chosen) {
  n = std::min(n, logits.size());
  std::vector<Candidate> top(n + 1);
  // The sum runs in the order of an array that std::partial_sort went over: the top n, then each place with what it
  // holds then.
  struct Displaced {
    std::size_t place;
    float logit;
  };
  std::vector<Displaced> displaced;
  float max = -std::numeric_limits<float>::infinity();
  if (n > 0) {
    select_top(logits, n, top.data(), [&](std::size_t place, float logit) { displaced.push_back({place, logit}); });
    max = top[0].logit;
  } else {
    for (const float logit : logits) max = std::max(max, logit);
  }
  // Terms below half a unit in the last place of a sum that has reached 1 change nothing: exp(-16.7) < 2^-24.
  constexpr float kNegligible = -16.7f;
  float sum = 0.0f;
  const auto add = [&](float logit) {
    const float x = logit - max;
    if (sum >= 1.0f && x < kNegligible) return;
    sum += std::exp(x);
  };
  for (std::size_t i = 0; i < n; ++i) add(top[i].logit);
  std::size_t place = n;
  for (const Displaced& other : displaced) {
    for (; place < other.place; ++place) add(logits[place]);
    add(other.logit);
    ++place;
  }
  for (; place < logits.size(); ++place) add(logits[place]);

  const auto log_probability = [&](float logit) { return std::log(std::exp(logit - max) / sum); };
  for (std::size_t i = 0; i < n; ++i) top[i].p = log_probability(top[i].logit);
  const float logit = logits[static_cast<std::size_t>(chosen)];
  top[n] = {chosen, logit, log_probability(logit)};
  return top;
}

}  // namespace bankml
