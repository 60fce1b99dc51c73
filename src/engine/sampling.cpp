#include "bankml/engine/sampling.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "bankml/base/error.hpp"
#include "engine/dry.hpp"
#include "engine/sampling_stage.hpp"

namespace bankml {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

void check_penalties(const SamplingParams& params) {
  const float repeat = params.repeat_penalty;
  if (!std::isfinite(repeat) || repeat <= 0.0f || !std::isfinite(1.0f / repeat)) {
    throw Error(
        ErrorKind::invalid_request,
        fmt::format("repeat_penalty: expected a finite number above 0 with a finite reciprocal, got {}", repeat));
  }
  const auto check_finite = [](const char* name, float value) {
    if (std::isfinite(value)) return;
    throw Error(ErrorKind::invalid_request, fmt::format("{}: expected a finite number, got {}", name, value));
  };
  check_finite("frequency_penalty", params.frequency_penalty);
  check_finite("presence_penalty", params.presence_penalty);
}

std::vector<std::pair<TokenId, float>> all_biases(const SamplingParams& params, const Tokenizer& tokenizer) {
  std::vector<std::pair<TokenId, float>> biases = params.logit_bias;
  for (const TokenId token : tokenizer.suppressed()) biases.emplace_back(token, kNever);
  return biases;
}

std::unique_ptr<SamplingStage> make_stage(SamplerKind kind, const SamplingParams& params, const Tokenizer& tokenizer) {
  const auto vocab = static_cast<std::size_t>(tokenizer.size());
  switch (kind) {
    case SamplerKind::penalties:
      return make_penalties(params, vocab);
    case SamplerKind::dry:
      return nullptr;  // made with the breakers that all of its kind share
    case SamplerKind::top_n_sigma:
      return make_top_n_sigma(params);
    case SamplerKind::top_k:
      return make_top_k(params);
    case SamplerKind::typical_p:
      return make_typical(params);
    case SamplerKind::top_p:
      return make_top_p(params);
    case SamplerKind::min_p:
      return make_min_p(params);
    case SamplerKind::xtc:
      return make_xtc(params);
    case SamplerKind::temperature:
      return make_temperature(params);
    case SamplerKind::infill:
      return make_infill(tokenizer);
    case SamplerKind::adaptive_p:
      return nullptr;  // wherever it is listed, it is the selector
  }
  return nullptr;
}

}  // namespace

struct Sampler::Impl {
  Impl(const SamplingParams& params, const Tokenizer& tokenizer)
      : vocab(static_cast<std::size_t>(tokenizer.size())), biases(all_biases(params, tokenizer)) {
    if (params.mirostat > 0) {
      add(make_plain_temperature(params.temperature));
      selector = make_mirostat(params, vocab);
      return;
    }
    std::optional<DryBreakers> breakers;  // found once: that takes a comparison with each token of the vocabulary
    for (const SamplerKind kind : params.samplers) {
      if (kind == SamplerKind::dry && dry_is_on(params)) {
        if (!breakers) breakers = find_dry_breakers(params.dry_sequence_breakers, tokenizer);
        add(make_dry(params, vocab, *breakers));
      } else {
        add(make_stage(kind, params, tokenizer));
      }
    }
    const bool adaptive =
        std::find(params.samplers.begin(), params.samplers.end(), SamplerKind::adaptive_p) != params.samplers.end();
    selector = adaptive ? make_adaptive_p(params) : make_draw(params);
  }

  void add(std::unique_ptr<SamplingStage> stage) {
    if (stage) stages.push_back(std::move(stage));
  }

  std::size_t vocab;
  std::vector<std::pair<TokenId, float>> biases;
  std::vector<std::unique_ptr<SamplingStage>> stages;
  std::unique_ptr<Selector> selector;
  CandidateArray candidates;
};

Sampler::Sampler(const SamplingParams& params, const Tokenizer& tokenizer) {
  check_penalties(params);
  impl_ = std::make_unique<Impl>(params, tokenizer);
}
Sampler::~Sampler() = default;
Sampler::Sampler(Sampler&&) noexcept = default;
Sampler& Sampler::operator=(Sampler&&) noexcept = default;

void Sampler::accept_prompt(std::span<const TokenId> tokens) {
  for (const auto& stage : impl_->stages) {
    for (const TokenId token : tokens) stage->accept(token);
  }
}

TokenId Sampler::sample(std::span<const float> logits) {
  if (logits.size() != impl_->vocab || logits.empty()) {
    throw Error(ErrorKind::internal,
                fmt::format("sampling: expected one logit for each of {} tokens, got {}", impl_->vocab, logits.size()));
  }
  CandidateArray& candidates = impl_->candidates;
  candidates.assign(logits);
  for (const auto& [token, bias] : impl_->biases) candidates.add_bias(token, bias);
  for (const auto& stage : impl_->stages) stage->apply(candidates);
  const std::size_t chosen = impl_->selector->select(candidates);
  return candidates.items()[chosen].id;
}

void Sampler::accept(TokenId token) {
  for (const auto& stage : impl_->stages) stage->accept(token);
  impl_->selector->accept(token);
}

std::vector<Candidate> Sampler::last_candidates(std::size_t n) const {
  std::vector<Candidate> out;
  for (const Candidate& candidate : impl_->candidates.items()) {
    if (candidate.p > 0.0f) out.push_back(candidate);
  }
  std::stable_sort(out.begin(), out.end(), [](const Candidate& a, const Candidate& b) { return a.p > b.p; });
  out.resize(std::min(n, out.size()));
  return out;
}

}  // namespace bankml
