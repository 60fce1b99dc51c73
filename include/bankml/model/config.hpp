#pragma once
// What a model's graph is made of, read once from the GGUF metadata. Differences between architectures are fields here;
// the name of an architecture is compared in read_config() and nowhere else.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/device/ops.hpp"
#include "bankml/model/gguf.hpp"
#include "bankml/text/tokenizer.hpp"

namespace bankml {

struct LayerConfig {
  int heads = 0, kv_heads = 0, hidden = 0;  // query heads, KV heads, width of the feed-forward part
  int window = 0;                           // 0: full attention
  // Style none: no rotation on this layer. `factors` is left to the user of Model::rope_factors(). `attn_factor` is the
  // whole magnitude of cosines and sines for ext_factor 0; otherwise the operator multiplies it by 1 + 0.1 ln(1 /
  // freq_scale) (docs/architectures.md, 3.3).
  RopeParams rope;
};

// The feed-forward part of every layer as a mixture of experts.
struct ExpertConfig {
  int count = 0, used = 0;   // 0: no experts
  int hidden = 0;            // width of an expert
  int shared_hidden = 0;     // of the expert that every row goes to; 0: none
  bool router_bias = false;  // the router and the experts may have biases
  RouterParams router;
};

struct ModelConfig {
  std::string architecture, name, file_type;  // file_type: "Q4_1", as the peer shows it
  int context = 0;                            // training length
  int dim = 0, layers = 0, vocab = 0;
  int head_dim_k = 0, head_dim_v = 0;
  float norm_eps = 0.0f;
  std::vector<LayerConfig> layer;  // `layers` of them

  float embedding_scale = 1.0f;                          // multiplied to the embedding row; 1: no multiplication
  float attention_scale = 1.0f;                          // given to the attention op
  float q_scale = 1.0f;                                  // multiplied into Q after the rotation; 1: no multiplication
  float attention_softcap = 0.0f, logit_softcap = 0.0f;  // 0: none
  float residual_scale = 1.0f, logit_scale = 1.0f;       // 1: none
  ExpertConfig experts;
  GluKind activation = GluKind::silu;
  bool pre_norms = true;              // attn_norm and ffn_norm
  std::string ffn_norm = "ffn_norm";  // name of the tensor
  bool post_norms = false;            // post_attention_norm and post_ffw_norm on the branches
  enum class QkNorm { none, head, whole } qk_norm = QkNorm::none;

  bool sinks = false;            // tensor attn_sinks: one more score for each head
  bool all_rows_to_end = false;  // rows without logits go through the last feed-forward part too

  enum class OutputTensor : std::uint8_t { optional, required, tied } output_tensor = OutputTensor::optional;

  bool rope_freqs = false;         // tensor rope_freqs, if the file has it
  bool rope_long_factors = false;  // tensors rope_factors_long and rope_factors_short, if the file has them
  int rope_n_ctx_orig = 0;         // sequences with a larger context take the long ones

  // Whether some layers see only a window.
  bool windowed() const noexcept {
    return std::any_of(layer.begin(), layer.end(), [](const LayerConfig& l) { return l.window > 0; });
  }
};

// User overrides of the position scaling, from the command line; unset: as the file says. They must be finite; the base
// above 1, the scale, the betas and the context above 0.
struct RopeOverrides {
  std::optional<float> freq_base = {}, freq_scale = {}, ext_factor = {}, attn_factor = {}, beta_fast = {},
                       beta_slow = {};
  std::optional<int> orig_context = {};
  std::optional<std::string> scaling = {};  // none, linear, yarn
};

// Throws Error(unsupported) for an architecture that isn't built in (naming it and those that are),
// Error(invalid_request) for missing or inconsistent values, naming the key.
ModelConfig read_config(const GgufFile& file, const RopeOverrides& overrides = {});

// The tokenizer.ggml.* keys: throws Error(invalid_request) for one that is missing or of another type, naming it. That
// the tables fit each other is the Tokenizer's to check.
VocabularySource read_vocabulary(const GgufFile& file);

// Text of tokenizer.chat_template (or its variant tokenizer.chat_template.NAME), "" if absent.
std::string read_chat_template(const GgufFile& file, std::string_view variant = {});

}  // namespace bankml
