#pragma once
// The parts of a sampling chain: stages change the candidates, a selector takes one of them (docs/sampling.md, section
// 3).
#include <cstdint>
#include <memory>

#include "engine/candidates.hpp"

namespace bankml {

class SamplingStage {
 public:
  virtual ~SamplingStage() = default;
  virtual void apply(CandidateArray& candidates) = 0;
  virtual void accept(TokenId) {}  // a token of the prompt, or a chosen one
};

class Selector {
 public:
  virtual ~Selector() = default;
  // The index of the chosen candidate; there is at least one. Leaves p as the probabilities it drew from.
  virtual std::size_t select(CandidateArray& candidates) = 0;
  virtual void accept(TokenId) {}
};

// Each gives nullptr for a stage that is off with these parameters.
std::unique_ptr<SamplingStage> make_penalties(const SamplingParams& params, std::size_t vocab);
std::unique_ptr<SamplingStage> make_top_n_sigma(const SamplingParams& params);
std::unique_ptr<SamplingStage> make_top_k(const SamplingParams& params);
std::unique_ptr<SamplingStage> make_typical(const SamplingParams& params);
std::unique_ptr<SamplingStage> make_top_p(const SamplingParams& params);
std::unique_ptr<SamplingStage> make_min_p(const SamplingParams& params);
std::unique_ptr<SamplingStage> make_xtc(const SamplingParams& params);
std::unique_ptr<SamplingStage> make_temperature(const SamplingParams& params);
std::unique_ptr<SamplingStage> make_plain_temperature(float temperature);  // without dynamic range
std::unique_ptr<SamplingStage> make_infill(const Tokenizer& tokenizer);    // `tokenizer` outlives it

std::unique_ptr<Selector> make_draw(const SamplingParams& params);
std::unique_ptr<Selector> make_mirostat(const SamplingParams& params, std::size_t vocab);  // params.mirostat is 1 or 2
std::unique_ptr<Selector> make_adaptive_p(const SamplingParams& params);

}  // namespace bankml
