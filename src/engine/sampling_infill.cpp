#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>

#include "engine/sampling_stage.hpp"

namespace bankml {
namespace {

// For filling in the middle: ends early rather than late, and counts spellings of the same continuation as one.
class Infill final : public SamplingStage {
 public:
  explicit Infill(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  void apply(CandidateArray& candidates) override {
    constexpr float kWeightOfEnd = 3.0f, kLeastLikely = 0.2f;
    candidates.sort_and_softmax();
    float end_sum = 0.0f, text_sum = 0.0f;
    for (const Candidate& candidate : candidates.items()) {
      (tokenizer_.is_eog(candidate.id) ? end_sum : text_sum) += candidate.p;
    }
    if (kWeightOfEnd * end_sum * static_cast<float>(candidates.size()) > text_sum) {
      candidates.filter([this](const Candidate& candidate) { return tokenizer_.is_eog(candidate.id); });
      return;
    }
    merge_prefixes(candidates.items());
    keep_text_from(candidates, kLeastLikely);
    const std::span<const Candidate> all = candidates.items();
    const auto texts =
        std::count_if(all.begin(), all.end(), [this](const Candidate& c) { return !tokenizer_.is_eog(c.id); });
    keep_text_from(candidates, 1.0f / static_cast<float>(texts + 1));
    if (candidates.size() == 0) end(candidates);
  }

 private:
  void keep_text_from(CandidateArray& candidates, float least) {
    candidates.filter(
        [&](const Candidate& candidate) { return tokenizer_.is_eog(candidate.id) || candidate.p >= least; });
  }

  // Gives p of the less likely to the more likely, wherever one text begins with the other.
  void merge_prefixes(std::span<Candidate> all) {
    const auto text = [&](std::size_t i) { return tokenizer_.piece(all[i].id, true); };
    // In the order of their texts, those that begin with a text follow it immediately.
    by_text_.resize(all.size());
    std::iota(by_text_.begin(), by_text_.end(), 0u);
    std::sort(by_text_.begin(), by_text_.end(), [&](std::size_t a, std::size_t b) {
      const int order = text(a).compare(text(b));
      return order != 0 ? order < 0 : a < b;
    });
    place_.resize(all.size());
    for (std::size_t i = 0; i < by_text_.size(); ++i) place_[by_text_[i]] = i;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (text(i).empty() || tokenizer_.is_eog(all[i].id)) continue;
      for (std::size_t j = place_[i] + 1; j < by_text_.size() && all[i].p > 0.0f; ++j) {
        if (!text(by_text_[j]).starts_with(text(i))) break;
        Candidate& longer = all[by_text_[j]];
        if (tokenizer_.is_eog(longer.id)) continue;
        Candidate& kept = longer.p > all[i].p ? longer : all[i];
        Candidate& merged = longer.p > all[i].p ? all[i] : longer;
        kept.p += merged.p;
        merged.p = 0.0f;
      }
    }
  }

  void end(CandidateArray& candidates) {
    const std::optional<TokenId> token = tokenizer_.eot() ? tokenizer_.eot() : tokenizer_.eos();
    candidates.assign_single({token.value_or(0), 1.0f, 1.0f});
  }

  const Tokenizer& tokenizer_;
  std::vector<std::size_t> by_text_, place_;
};

}  // namespace

std::unique_ptr<SamplingStage> make_infill(const Tokenizer& tokenizer) {
  return std::make_unique<Infill>(tokenizer);
}

}  // namespace bankml
