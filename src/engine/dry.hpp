#pragma once
// DRY ("don't repeat yourself"): lowers what would continue a sequence that occurred before, the more the longer the
// sequence.
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/sampling_stage.hpp"

namespace bankml {

// Tokens that end a repetition. A breaker string may begin inside one token and go on in others: head, then one of its
// tails.
class DryBreakers {
 public:
  using Tail = std::vector<TokenId>;

  void add(TokenId head, Tail tail);
  const std::vector<Tail>* tails(TokenId head) const;  // nullptr: no head
  bool ends_alone(TokenId token) const;                // a head with an empty tail: contains a whole breaker

 private:
  std::unordered_map<TokenId, std::vector<Tail>> tails_;
};

// Heads and tails of the strings (cut to 40 bytes, empty ones skipped) over the whole vocabulary.
DryBreakers find_dry_breakers(std::span<const std::string> strings, const Tokenizer& tokenizer);

bool dry_is_on(const SamplingParams& params) noexcept;
// `params` must have DRY on.
std::unique_ptr<SamplingStage> make_dry(const SamplingParams& params, std::size_t vocab, DryBreakers breakers);

}  // namespace bankml
