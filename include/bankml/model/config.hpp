#pragma once
// What a model's graph is made of, read once from the GGUF metadata. Differences between architectures are fields here; the name
// of an architecture is compared in read_config() and nowhere else.
#include <cstdint>
#include <string>
#include <vector>

#include "bankml/device/ops.hpp"
#include "bankml/model/gguf.hpp"
#include "bankml/text/tokenizer.hpp"

namespace bankml {

struct LayerConfig {
  int heads = 0, kv_heads = 0, hidden = 0;  // query heads, KV heads, width of the feed-forward part
  int window = 0;                           // 0: full attention
  RopeParams rope;                          // style none: no rotation on this layer; factors set by read_config's owner
};

enum class RopeFactors { none, shared, short_context, long_context };  // tensors rope_freqs, rope_factors_short, _long

struct ModelConfig {
  std::string architecture, name, file_type;  // file_type: "Q4_1", as the peer shows it
  int context = 0;                            // training length
  int dim = 0, layers = 0, vocab = 0;
  int head_dim_k = 0, head_dim_v = 0;
  float norm_eps = 0.0f;
  std::vector<LayerConfig> layer;             // `layers` of them

  float embedding_scale = 1.0f;               // multiplied to the embedding row; 1: no multiplication
  float attention_scale = 1.0f;               // given to the attention op
  float q_scale = 1.0f;                       // multiplied into Q after the rotation; 1: no multiplication
  float attention_softcap = 0.0f, logit_softcap = 0.0f;  // 0: none
  float residual_scale = 1.0f, logit_scale = 1.0f;       // 1: none
  GluKind activation = GluKind::silu;
  bool pre_norms = true;                      // attn_norm and ffn_norm
  bool post_norms = false;                    // post_attention_norm and post_ffw_norm on the branches
  enum class QkNorm { none, head, whole } qk_norm = QkNorm::none;

  bool rope_long_factors = false;             // the file has longrope tensors
  int rope_n_ctx_orig = 0;
};

// User overrides of the position scaling, from the command line; unset: as the file says.
struct RopeOverrides {
  std::optional<float> freq_base, freq_scale, ext_factor, attn_factor, beta_fast, beta_slow;
  std::optional<int> orig_context;
  std::optional<std::string> scaling;         // none, linear, yarn
};

// Throws Error(unsupported) for an architecture that isn't built in (naming it and those that are), Error(invalid_request) for
// missing or inconsistent values, naming the key.
ModelConfig read_config(const GgufFile& file, const RopeOverrides& overrides = {});

// The tokenizer.ggml.* keys, checked for consistency.
VocabularySource read_vocabulary(const GgufFile& file);

// Text of tokenizer.chat_template (or its variant tokenizer.chat_template.NAME), "" if absent.
std::string read_chat_template(const GgufFile& file, std::string_view variant = {});

}  // namespace bankml
