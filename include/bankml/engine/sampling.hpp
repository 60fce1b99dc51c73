#pragma once
// Choosing a token from logits by llama-server b11192's chain of samplers, so that a seeded run gives its tokens.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bankml/text/tokenizer.hpp"

namespace bankml {

enum class SamplerKind {
  penalties,
  dry,
  top_n_sigma,
  top_k,
  typical_p,
  top_p,
  min_p,
  xtc,
  temperature,
  infill,
  adaptive_p
};

inline constexpr std::uint32_t kRandomSeed = 0xFFFFFFFFu;

struct SamplingParams {
  std::uint32_t seed = kRandomSeed;
  float temperature = 0.8f, dynatemp_range = 0.0f, dynatemp_exponent = 1.0f;
  std::int32_t top_k = 40;
  float top_p = 0.95f, min_p = 0.05f, top_n_sigma = -1.0f;
  float xtc_probability = 0.0f, xtc_threshold = 0.1f;
  float typical_p = 1.0f;
  std::int32_t repeat_last_n = 64;
  float repeat_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
  float dry_multiplier = 0.0f, dry_base = 1.75f;
  std::int32_t dry_allowed_length = 2, dry_penalty_last_n = 64;
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  std::int32_t mirostat = 0;
  float mirostat_tau = 5.0f, mirostat_eta = 0.1f;
  float adaptive_target = -1.0f, adaptive_decay = 0.9f;
  std::int32_t min_keep = 0;
  std::vector<std::pair<TokenId, float>> logit_bias;  // -infinity: never
  bool ignore_eos = false;
  std::vector<SamplerKind> samplers = default_samplers();

  static std::vector<SamplerKind> default_samplers();
};

// Names and letters of the `samplers` field; unknown entries are dropped.
std::vector<SamplerKind> parse_sampler_names(std::span<const std::string> names);
std::vector<SamplerKind> parse_sampler_letters(std::string_view letters);
std::string_view sampler_name(SamplerKind kind) noexcept;  // canonical: "typ_p", "top_k", ...

struct Candidate {
  TokenId id;
  float logit;
  float p;
};

// The chain of one request: state of its penalties, windows and random engines. Used by one thread.
class Sampler {
 public:
  // Throws Error(invalid_request) for penalties that are not finite or not positive.
  Sampler(const SamplingParams& params, const Tokenizer& tokenizer);
  ~Sampler();
  Sampler(Sampler&&) noexcept;
  Sampler& operator=(Sampler&&) noexcept;

  // Tokens of the prompt, in order, into the windows: once, before the first sample().
  void accept_prompt(std::span<const TokenId> tokens);
  // Chooses a token; draws from the random engines. `logits` is one value per token of the vocabulary.
  TokenId sample(std::span<const float> logits);
  // Puts a chosen token into the windows.
  void accept(TokenId token);
  // What was left after the chain of the last sample(), most likely first, probabilities summing to 1, zero ones
  // removed; at most n.
  std::vector<Candidate> last_candidates(std::size_t n) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// The n likeliest tokens of the raw logits with natural-log probabilities, as the peer reports them: float sums in the
// order that std::partial_sort leaves (docs/arithmetic.md, 4.1). `p` of the results holds the log-probability.
// `chosen`: appended as the last element, with its own log-probability.
std::vector<Candidate> top_logprobs(std::span<const float> logits, std::size_t n, TokenId chosen);

}  // namespace bankml
