#include "bankml/model/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "bankml/base/error.hpp"
#include "base/printable.hpp"
#include "model/architecture.hpp"
#include "model/config_keys.hpp"
#include "model/config_rope.hpp"
#include "model/context_limit.hpp"
#include "model/file_type.hpp"

namespace bankml {
namespace {

constexpr int kMaxLayers = 512;
constexpr int kMaxExperts = 1024;
constexpr int kMaxInt = ConfigKeys::kMaxCount;

const Architecture& find_architecture(const GgufFile& file) {
  const auto name = file.string_value("general.architecture");
  if (!name)
    throw Error(ErrorKind::invalid_request, fmt::format("{}: key 'general.architecture' is missing", file.name()));
  std::vector<std::string_view> known;
  for (const Architecture& architecture : kArchitectures) {
    if (architecture.name == *name) return architecture;
    known.push_back(architecture.name);
  }
  throw Error(ErrorKind::unsupported, fmt::format("{}: architecture {} is not supported; supported: {}", file.name(),
                                                  printable(*name), fmt::join(known, ", ")));
}

// Experts used by a row: one number, or one for each layer that all are the same.
int read_used_experts(const ConfigKeys& keys, int stored_layers, int count) {
  constexpr std::string_view kKey = "expert_used_count";
  const std::vector<int> used = keys.per_layer(kKey, stored_layers, 1);
  if (used.front() > count) keys.fail(kKey, "expected at most the {} experts, found {}", count, used.front());
  if (std::any_of(used.begin(), used.end(), [&](int n) { return n != used.front(); })) {
    throw Error(ErrorKind::unsupported,
                fmt::format("{}: key '{}': layers that use different numbers of experts are not supported",
                            keys.file().name(), keys.full(kKey)));
  }
  return used.front();
}

// After read_layers(). An expert of no known width is as wide as the dense part divided by the number used.
void read_experts(const ConfigKeys& keys, const ExpertRule& rule, int stored_layers, ModelConfig& config) {
  using Use = ExpertRule::Use;
  const int count = keys.find_count("expert_count", 0, kMaxExperts).value_or(0);
  if (count == 0 && rule.use == Use::always) keys.fail("expert_count", "expected experts, found none");
  if (count == 0) return;
  if (rule.use == Use::never) {
    throw Error(ErrorKind::unsupported, fmt::format("{}: key '{}': experts are not supported in this architecture",
                                                    keys.file().name(), keys.full("expert_count")));
  }
  ExpertConfig& experts = config.experts;
  experts.count = count;
  experts.used = read_used_experts(keys, stored_layers, count);
  experts.router_bias = rule.biases;
  experts.router = rule.router;
  const int dense = config.layer.front().hidden;
  const int own = rule.own_width ? keys.find_count("expert_feed_forward_length", 0).value_or(0) : dense;
  experts.hidden = own != 0 ? own : dense / experts.used;
  if (experts.hidden < 1) keys.fail("expert_feed_forward_length", "expected a width above 0, found none");
  if (rule.shared) experts.shared_hidden = keys.find_count("expert_shared_feed_forward_length", 0).value_or(0);
}

int read_vocabulary_size(const ConfigKeys& keys) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  const auto tokens = keys.file().array_size(kTokens).value_or(0);
  if (tokens < 1 || tokens > static_cast<std::uint64_t>(kMaxInt)) {
    throw Error(ErrorKind::invalid_request, fmt::format("{}: key '{}': expected a list of tokens, found {} elements",
                                                        keys.file().name(), kTokens, tokens));
  }
  return static_cast<int>(tokens);
}

// The forward pass has one width for what attention gives and one for what the feed-forward part gives.
void refuse_other_width(const ConfigKeys& keys, std::string_view key, int layer, int first, int found) {
  if (found == first) return;
  throw Error(ErrorKind::unsupported,
              fmt::format("{}: key '{}': layers of different widths are not supported, found {} in layer 0 and {} in "
                          "layer {}",
                          keys.file().name(), keys.full(key), first, found, layer));
}

// Query and KV heads and the feed-forward width of every layer, of `stored` layers in the file's arrays.
// Where experts take its place, the width may be missing.
std::vector<LayerConfig> read_layers(const ConfigKeys& keys, int stored, int used, bool needs_width) {
  const auto heads = keys.per_layer("attention.head_count", stored, 1);
  const auto kv_heads = keys.find_per_layer("attention.head_count_kv", stored, 1).value_or(heads);
  constexpr std::string_view kWidth = "feed_forward_length";
  const auto hidden =
      needs_width
          ? keys.per_layer(kWidth, stored, 1)
          : keys.find_per_layer(kWidth, stored, 0).value_or(std::vector<int>(static_cast<std::size_t>(stored), 0));
  std::vector<LayerConfig> layers(static_cast<std::size_t>(used));
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (heads[i] % kv_heads[i] != 0) {
      keys.fail("attention.head_count_kv", "expected a divisor of the {} query heads of layer {}, found {}", heads[i],
                i, kv_heads[i]);
    }
    refuse_other_width(keys, "attention.head_count", static_cast<int>(i), heads.front(), heads[i]);
    refuse_other_width(keys, "feed_forward_length", static_cast<int>(i), hidden.front(), hidden[i]);
    layers[i].heads = heads[i];
    layers[i].kv_heads = kv_heads[i];
    layers[i].hidden = hidden[i];
  }
  return layers;
}

void read_head_dims(const ConfigKeys& keys, ModelConfig& config) {
  const int usual = config.dim / config.layer.front().heads;
  config.head_dim_k = keys.find_count("attention.key_length", 1).value_or(usual);
  config.head_dim_v = keys.find_count("attention.value_length", 1).value_or(usual);
  if (config.head_dim_k < 2 || config.head_dim_k % 2 != 0) {
    keys.fail("attention.key_length", "expected an even head length, found {}", config.head_dim_k);
  }
  if (config.head_dim_v != config.head_dim_k) {
    keys.fail("attention.value_length", "expected the length of keys, {}, found {}", config.head_dim_k,
              config.head_dim_v);
  }
  for (const LayerConfig& layer : config.layer) {
    if (layer.heads > kMaxInt / config.head_dim_k) {
      keys.fail("attention.head_count", "{} heads of length {} are too many", layer.heads, config.head_dim_k);
    }
  }
}

// The scale of attention scores, given to the attention op or multiplied into Q.
void read_attention_scale(const ConfigKeys& keys, const Architecture& architecture, ModelConfig& config) {
  const bool by_width = config.layers == architecture.layers_scaled_by_width;
  const int length = by_width ? config.dim / config.layer.front().heads : config.head_dim_k;
  if (length < 1)
    keys.fail("attention.head_count", "expected at most {} heads, found {}", config.dim, config.layer.front().heads);
  float scale = architecture.attention_scale_key ? keys.number("attention.scale", 0.0f) : 0.0f;
  if (scale == 0.0f) scale = 1.0f / std::sqrt(static_cast<float>(length));
  (architecture.prescaled_q ? config.q_scale : config.attention_scale) = scale;
}

float read_softcap(const ConfigKeys& keys, std::string_view key, float otherwise) {
  const float cap = keys.number(key, otherwise);
  if (cap < 0.0f) keys.fail(key, "expected a number of at least 0, found {}", cap);
  return cap;
}

// What is multiplied to embeddings, branches and logits, and the caps.
void read_scales(const ConfigKeys& keys, const Architecture& architecture, ModelConfig& config) {
  if (architecture.embedding_by_width) config.embedding_scale = std::sqrt(static_cast<float>(config.dim));
  if (architecture.scale_keys) {
    const auto scale = [&](std::string_view key) {
      const float value = keys.number(key, 0.0f);
      return value != 0.0f ? value : 1.0f;
    };
    config.embedding_scale = scale("embedding_scale");
    config.residual_scale = scale("residual_scale");
    if (!keys.find_number("logit_scale")) keys.fail("logit_scale", "missing");
    config.logit_scale = 1.0f / scale("logit_scale");
  }
  if (architecture.attention_softcap_key) {
    config.attention_softcap = read_softcap(keys, "attn_logit_softcapping", architecture.attention_softcap);
  }
  if (architecture.logit_softcap_key) {
    config.logit_softcap = read_softcap(keys, "final_logit_softcapping", architecture.logit_softcap);
  }
}

}  // namespace

ModelConfig read_config(const GgufFile& file, const RopeOverrides& overrides) {
  check_overrides(overrides);
  const Architecture& architecture = find_architecture(file);
  const ConfigKeys keys(file, architecture.name);

  ModelConfig config;
  config.architecture = architecture.name;
  config.name = file.string_value("general.name").value_or("");
  config.file_type = file_type_name(file);
  config.context = keys.count("context_length", 1, kMaxContext);
  config.dim = keys.count("embedding_length", 1);
  config.vocab = read_vocabulary_size(keys);

  const int stored_layers = keys.count("block_count", 1, kMaxLayers);
  const int extra_layers = keys.find_count("nextn_predict_layers", 0, stored_layers - 1).value_or(0);
  config.layers = stored_layers - extra_layers;
  config.layer = read_layers(keys, stored_layers, config.layers, !architecture.experts.own_width);
  read_experts(keys, architecture.experts, stored_layers, config);
  read_head_dims(keys, config);

  constexpr std::string_view kEps = "attention.layer_norm_rms_epsilon";
  const auto eps = keys.find_number(kEps);
  if (!eps) keys.fail(kEps, "missing");
  if (*eps < 0.0f) keys.fail(kEps, "expected a number of at least 0, found {}", *eps);
  config.norm_eps = *eps;

  read_attention_scale(keys, architecture, config);
  read_scales(keys, architecture, config);
  read_rotation(keys, overrides, architecture, config);
  read_windows(keys, overrides, architecture.window, stored_layers, config);
  config.activation = architecture.activation;
  config.pre_norms = architecture.pre_norms;
  config.post_norms = architecture.post_norms;
  config.ffn_norm = architecture.ffn_norm;
  config.sinks = architecture.sinks;
  config.all_rows_to_end = architecture.all_rows_to_end;
  config.qk_norm = architecture.qk_norm;
  config.output_tensor = architecture.output;
  return config;
}

}  // namespace bankml
