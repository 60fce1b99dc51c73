#pragma once
// The architectures that are built in and what tells them apart (docs/architectures.md, sections 3 to 5). Read by
// read_config(), which turns it into the fields of ModelConfig; nothing else knows the name of an architecture.
#include <string_view>

#include "bankml/model/config.hpp"

namespace bankml {

// Layers that see only the last positions: their number, and where the file leaves it open, which layers and how they
// are rotated.
struct WindowRule {
  bool used = false;      // false: the keys are not looked at
  int size = 0;           // where the file has no key; 0: full attention
  int period = 0;         // the last of so many layers has full attention
  float base = 0.0f;      // of the rotation; 0: that of the other layers
  bool unscaled = false;  // positions are not scaled, whatever the other layers do
  bool no_yarn = false;
};

// Which layers have a mixture of experts for their feed-forward part, and of which kind.
struct ExpertRule {
  enum class Use { never, by_key, always } use = Use::never;  // by_key: where expert_count is above 0
  // The width of an expert: that of the key expert_feed_forward_length, without it the dense width divided by the
  // experts used; or always the dense width.
  bool own_width = false;
  bool shared = false;  // key expert_shared_feed_forward_length
  bool biases = false;
  RouterParams router = {};
};

struct Architecture {
  std::string_view name;
  RopeStyle rope = RopeStyle::neox;
  bool partial_rope = false;  // the rotated part may be shorter than a head
  bool rope_freqs = false;    // may have a tensor of frequency factors
  enum class LongFactors { none, by_scaling_type, always } long_factors = LongFactors::none;
  int unrotated_every = 0;   // of so many layers the last isn't rotated; 0: all are
  bool rope_switch = false;  // key rope.scaling.finetuned, false: no rotation

  bool attention_scale_key = false;
  bool prescaled_q = false;        // the scale is multiplied into Q
  int layers_scaled_by_width = 0;  // the model with so many layers takes dim / heads for the length of a head in it

  bool embedding_by_width = false;  // embedding rows times sqrt(dim)
  bool scale_keys = false;          // embedding_scale, residual_scale, logit_scale
  bool attention_softcap_key = false, logit_softcap_key = false;
  float attention_softcap = 0.0f, logit_softcap = 0.0f;  // where the file has no key

  GluKind activation = GluKind::silu;
  bool pre_norms = true, post_norms = false;
  std::string_view ffn_norm = "ffn_norm";
  bool sinks = false, all_rows_to_end = false;
  ModelConfig::QkNorm qk_norm = ModelConfig::QkNorm::none;
  ModelConfig::OutputTensor output = ModelConfig::OutputTensor::optional;
  WindowRule window = {};
  ExpertRule experts = {};
};

inline constexpr Architecture kArchitectures[] = {
    {.name = "llama",
     .rope = RopeStyle::adjacent,
     .rope_freqs = true,
     .long_factors = Architecture::LongFactors::by_scaling_type,
     .attention_scale_key = true,
     .experts = {.use = ExpertRule::Use::by_key, .router = {.normalize = true}}},
    {.name = "smollm3", .rope = RopeStyle::adjacent, .unrotated_every = 4},
    {.name = "qwen2"},
    {.name = "qwen3", .qk_norm = ModelConfig::QkNorm::head},
    {.name = "qwen3moe",
     .qk_norm = ModelConfig::QkNorm::head,
     .experts = {.use = ExpertRule::Use::always, .own_width = true, .router = {.normalize = true}}},
    {.name = "phi3", .partial_rope = true, .long_factors = Architecture::LongFactors::always, .prescaled_q = true},
    {.name = "olmo2",
     .pre_norms = false,
     .post_norms = true,
     .qk_norm = ModelConfig::QkNorm::whole,
     .output = ModelConfig::OutputTensor::required,
     .window = {.used = true, .period = 4, .unscaled = true, .no_yarn = true}},
    {.name = "granite",
     .rope = RopeStyle::adjacent,
     .rope_freqs = true,
     .long_factors = Architecture::LongFactors::by_scaling_type,
     .rope_switch = true,
     .attention_scale_key = true,
     .scale_keys = true},
    {.name = "granitemoe",
     .rope = RopeStyle::adjacent,
     .rope_freqs = true,
     .long_factors = Architecture::LongFactors::by_scaling_type,
     .rope_switch = true,
     .attention_scale_key = true,
     .scale_keys = true,
     .experts = {.use = ExpertRule::Use::always, .shared = true, .router = {.normalize = true}}},
    {.name = "gpt-oss",
     .activation = GluKind::clamped_swiglu,
     .ffn_norm = "post_attention_norm",
     .sinks = true,
     .all_rows_to_end = true,
     .output = ModelConfig::OutputTensor::required,
     .window = {.used = true, .period = 2},
     .experts =
         {.use = ExpertRule::Use::always, .own_width = true, .biases = true, .router = {.softmax_of_chosen = true}}},
    {.name = "gemma2",
     .partial_rope = true,
     .prescaled_q = true,
     .layers_scaled_by_width = 46,
     .embedding_by_width = true,
     .attention_softcap_key = true,
     .logit_softcap_key = true,
     .attention_softcap = 50.0f,
     .logit_softcap = 30.0f,
     .activation = GluKind::gelu,
     .post_norms = true,
     .output = ModelConfig::OutputTensor::tied,
     .window = {.used = true, .size = 4096, .period = 2}},
    {.name = "gemma3",
     .partial_rope = true,
     .prescaled_q = true,
     .layers_scaled_by_width = 62,
     .embedding_by_width = true,
     .logit_softcap_key = true,
     .activation = GluKind::gelu,
     .post_norms = true,
     .qk_norm = ModelConfig::QkNorm::head,
     .window = {.used = true, .period = 6, .base = 10000.0f, .unscaled = true}},
};

}  // namespace bankml
