#include <cmath>

#include "engine/sampling_stage.hpp"
#include "engine/token_window.hpp"

namespace bankml {
namespace {

// Repetition, frequency and presence penalties over the last tokens (Keskar et al. 2019, section 4.1, for the first).
class Penalties final : public SamplingStage {
 public:
  Penalties(const SamplingParams& params, std::size_t vocab)
      : repeat_(params.repeat_penalty),
        frequency_(params.frequency_penalty),
        presence_(params.presence_penalty),
        window_(static_cast<std::size_t>(params.repeat_last_n)),
        counts_(vocab) {}

  void apply(CandidateArray& candidates) override {
    candidates.for_each([this](TokenId id, float& logit) {
      const std::int32_t count = counts_[static_cast<std::size_t>(id)];
      if (count == 0) return;
      logit = logit <= 0.0f ? logit * repeat_ : logit / repeat_;
      logit -= static_cast<float>(count) * frequency_ + presence_;
    });
    candidates.set_sorted(false);
  }

  void accept(TokenId token) override {
    if (token < 0 || static_cast<std::size_t>(token) >= counts_.size()) return;
    ++counts_[static_cast<std::size_t>(token)];
    const TokenId gone = window_.push(token);
    if (gone >= 0) --counts_[static_cast<std::size_t>(gone)];
  }

 private:
  float repeat_, frequency_, presence_;
  TokenWindow window_;
  std::vector<std::int32_t> counts_;  // in the window, by token
};

}  // namespace

std::unique_ptr<SamplingStage> make_penalties(const SamplingParams& params, std::size_t vocab) {
  const bool neutral =
      params.repeat_penalty == 1.0f && params.frequency_penalty == 0.0f && params.presence_penalty == 0.0f;
  if (params.repeat_last_n <= 0 || neutral) return nullptr;
  return std::make_unique<Penalties>(params, vocab);
}

}  // namespace bankml
