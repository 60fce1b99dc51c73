#include "bankml/model/config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <limits>
#include <utility>

#include "bankml/base/error.hpp"
#include "base/printable.hpp"
#include "model/architecture.hpp"
#include "model/context_limit.hpp"
#include "model/file_type.hpp"

namespace bankml {
namespace {

constexpr int kMaxLayers = 512;
constexpr int kMaxExperts = 1024;
constexpr int kMaxInt = std::numeric_limits<int>::max();

// The keys of one architecture, with its name as their prefix.
class Keys {
 public:
  Keys(const GgufFile& file, std::string_view architecture) : file_(file), architecture_(architecture) {}

  const GgufFile& file() const noexcept { return file_; }
  std::string full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

  template <class... Args>
  [[noreturn]] void fail(std::string_view key, fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::invalid_request, fmt::format("{}: key '{}': {}", file_.name(), full(key),
                                                        fmt::format(format, std::forward<Args>(args)...)));
  }

  std::optional<int> find_count(std::string_view key, int low, int high = kMaxInt) const {
    const auto stored = file_.unsigned_value(full(key));
    return stored ? std::optional(checked(key, *stored, low, high)) : std::nullopt;
  }
  int count(std::string_view key, int low, int high = kMaxInt) const {
    const auto found = find_count(key, low, high);
    if (!found) fail(key, "missing");
    return *found;
  }
  std::optional<float> find_number(std::string_view key) const { return file_.float_value(full(key)); }
  // For scales and caps, where 0 stands for none.
  float number(std::string_view key, float otherwise) const { return find_number(key).value_or(otherwise); }
  bool flag(std::string_view key, bool otherwise) const { return file_.bool_value(full(key)).value_or(otherwise); }
  std::optional<std::string_view> find_text(std::string_view key) const { return file_.string_value(full(key)); }

  // One value for all layers, or an array with one for each.
  std::optional<std::vector<int>> find_per_layer(std::string_view key, int layers, int low) const {
    const auto size = file_.array_size(full(key));
    if (!size) {
      const auto one = find_count(key, low);
      return one ? std::optional(std::vector<int>(static_cast<std::size_t>(layers), *one)) : std::nullopt;
    }
    if (std::cmp_not_equal(*size, layers)) fail(key, "expected an array of {} elements, found {}", layers, *size);
    const auto stored = file_.integers(full(key));
    std::vector<int> out;
    for (const std::int64_t value : *stored) out.push_back(checked(key, value, low, kMaxInt));
    return out;
  }
  std::vector<int> per_layer(std::string_view key, int layers, int low) const {
    auto found = find_per_layer(key, layers, low);
    if (!found) fail(key, "missing");
    return std::move(*found);
  }

 private:
  template <class T>
  int checked(std::string_view key, T value, int low, int high) const {
    if (std::cmp_less(value, low) || std::cmp_greater(value, high)) {
      fail(key, "expected a value from {} to {}, found {}", low, high, value);
    }
    return static_cast<int>(value);
  }

  const GgufFile& file_;
  std::string_view architecture_;
};

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

void check_overrides(const RopeOverrides& user) {
  const auto check = [](std::string_view name, const std::optional<float>& value, float above) {
    if (value && !(std::isfinite(*value) && *value > above)) {
      throw Error(ErrorKind::invalid_request,
                  fmt::format("{}: expected a number above {}, found {}", name, above, *value));
    }
  };
  constexpr float kAny = std::numeric_limits<float>::lowest();
  check("rope frequency base", user.freq_base, 1.0f);
  check("rope frequency scale", user.freq_scale, 0.0f);
  check("yarn extrapolation factor", user.ext_factor, kAny);
  check("yarn attention factor", user.attn_factor, kAny);
  check("yarn beta fast", user.beta_fast, 0.0f);
  check("yarn beta slow", user.beta_slow, 0.0f);
  if (user.orig_context && *user.orig_context < 1) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("yarn original context: expected a number above 0, found {}", *user.orig_context));
  }
  if (user.scaling && *user.scaling != "none" && *user.scaling != "linear" && *user.scaling != "yarn") {
    throw Error(ErrorKind::invalid_request,
                fmt::format("rope scaling: expected none, linear or yarn, found {}", printable(*user.scaling)));
  }
}

std::string scaling_type(const Keys& keys, const RopeOverrides& user) {
  constexpr std::string_view kKey = "rope.scaling.type";
  if (user.scaling) return *user.scaling;
  const std::string_view type = keys.find_text(kKey).value_or("linear");
  if (type != "none" && type != "linear" && type != "yarn" && type != "longrope") {
    keys.fail(kKey, "expected none, linear, yarn or longrope, found {}", printable(type));
  }
  return std::string(type);
}

float file_freq_scale(const Keys& keys) {
  constexpr std::string_view kKey = "rope.scaling.factor";
  const float factor = keys.find_number(kKey).value_or(keys.find_number("rope.scale_linear").value_or(0.0f));
  if (factor == 0.0f) return 1.0f;
  const float scale = 1.0f / factor;
  if (!(scale > 0.0f) || !std::isfinite(scale)) keys.fail(kKey, "expected a number above 0, found {}", factor);
  return scale;
}

// The factor that stands for --yarn-attn-factor where YaRN is on (docs/architectures.md, 3.3); the operator multiplies
// it by 1 + 0.1 ln(factor) again. Which f32 steps are taken decides the last bit.
float yarn_magnitude(float freq_scale) {
  const float factor = 1.0f / freq_scale;
  const float own = 1.0f + 0.1f * std::log(factor);
  return (factor > 1.0f ? own : 1.0f) / own;
}

RopeParams read_rope(const Keys& keys, const RopeOverrides& user, RopeStyle style, int n_rot, int n_ctx_orig) {
  const std::string type = scaling_type(keys, user);
  RopeParams rope;
  rope.style = style;
  rope.n_rot = n_rot;
  rope.base = user.freq_base.value_or(keys.find_number("rope.freq_base").value_or(rope.base));
  if (!(rope.base > 1.0f)) keys.fail("rope.freq_base", "expected a number above 1, found {}", rope.base);
  rope.freq_scale = type == "none" ? 1.0f : user.freq_scale.value_or(file_freq_scale(keys));
  rope.n_ctx_orig = user.orig_context.value_or(n_ctx_orig);
  rope.ext_factor = user.ext_factor.value_or(type == "yarn" ? 1.0f : 0.0f);
  rope.beta_fast = user.beta_fast.value_or(rope.beta_fast);
  rope.beta_slow = user.beta_slow.value_or(rope.beta_slow);
  const float magnitude = rope.ext_factor != 0.0f ? yarn_magnitude(rope.freq_scale) : user.attn_factor.value_or(1.0f);
  rope.attn_factor = magnitude * keys.find_number("rope.scaling.attn_factor").value_or(1.0f);
  if (!std::isfinite(rope.attn_factor)) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("{}: YaRN has no finite attention factor for a frequency scale of {}", keys.file().name(),
                            rope.freq_scale));
  }
  return rope;
}

// Experts used by a row: one number, or one for each layer that all are the same.
int read_used_experts(const Keys& keys, int stored_layers, int count) {
  constexpr std::string_view kKey = "expert_used_count";
  const std::vector<int> used = keys.per_layer(kKey, stored_layers, 1);
  if (used.front() > count) keys.fail(kKey, "expected at most the {} experts, found {}", count, used.front());
  if (std::any_of(used.begin(), used.end(), [&](int n) { return n != used.front(); })) {
    throw Error(ErrorKind::unsupported,
                fmt::format("{}: key '{}': layers that use different numbers of experts are not "
                            "supported",
                            keys.file().name(), keys.full(kKey)));
  }
  return used.front();
}

// After read_layers(). An expert of no known width is as wide as the dense part divided by the number used.
void read_experts(const Keys& keys, const ExpertRule& rule, int stored_layers, ModelConfig& config) {
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

int read_vocabulary_size(const Keys& keys) {
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  const auto tokens = keys.file().array_size(kTokens).value_or(0);
  if (tokens < 1 || tokens > static_cast<std::uint64_t>(kMaxInt)) {
    throw Error(ErrorKind::invalid_request, fmt::format("{}: key '{}': expected a list of tokens, found {} elements",
                                                        keys.file().name(), kTokens, tokens));
  }
  return static_cast<int>(tokens);
}

// The forward pass has one width for what attention gives and one for what the feed-forward part gives.
void refuse_other_width(const Keys& keys, std::string_view key, int layer, int first, int found) {
  if (found == first) return;
  throw Error(ErrorKind::unsupported,
              fmt::format("{}: key '{}': layers of different widths are not supported, found {} in layer 0 and {} in "
                          "layer {}",
                          keys.file().name(), keys.full(key), first, found, layer));
}

// Query and KV heads and the feed-forward width of every layer, of `stored` layers in the file's arrays.
// Where experts take its place, the width may be missing.
std::vector<LayerConfig> read_layers(const Keys& keys, int stored, int used, bool needs_width) {
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

void read_head_dims(const Keys& keys, ModelConfig& config) {
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

int read_n_rot(const Keys& keys, int head_dim, bool partial) {
  constexpr std::string_view kKey = "rope.dimension_count";
  const int n_rot = keys.find_count(kKey, 1).value_or(head_dim);
  if (!partial && n_rot != head_dim) keys.fail(kKey, "expected the head length, {}, found {}", head_dim, n_rot);
  if (n_rot > head_dim || n_rot % 2 != 0) {
    keys.fail(kKey, "expected an even number up to the head length, {}, found {}", head_dim, n_rot);
  }
  return n_rot;
}

void read_rotation(const Keys& keys, const RopeOverrides& user, const Architecture& architecture, ModelConfig& config) {
  const int n_rot = read_n_rot(keys, config.head_dim_k, architecture.partial_rope);
  config.rope_n_ctx_orig = keys.find_count("rope.scaling.original_context_length", 1).value_or(config.context);
  RopeParams rope = read_rope(keys, user, architecture.rope, n_rot, config.rope_n_ctx_orig);
  if (architecture.rope_switch && !keys.flag("rope.scaling.finetuned", true)) rope.style = RopeStyle::none;
  for (LayerConfig& layer : config.layer) layer.rope = rope;
  if (const auto every = static_cast<std::size_t>(architecture.unrotated_every); every != 0) {
    for (std::size_t i = every - 1; i < config.layer.size(); i += every) config.layer[i].rope.style = RopeStyle::none;
  }
  config.rope_freqs = architecture.rope_freqs;
  // The tensors belong to the scaling that the file was made with, whatever the user asks for.
  using LongFactors = Architecture::LongFactors;
  config.rope_long_factors =
      architecture.long_factors == LongFactors::always ||
      (architecture.long_factors == LongFactors::by_scaling_type && keys.find_text("rope.scaling.type") == "longrope");
}

// Which layers see only a window: a list with one element a layer, or a period, of which the last layer sees all.
std::vector<bool> read_window_layers(const Keys& keys, const WindowRule& rule, int stored) {
  constexpr std::string_view kKey = "attention.sliding_window_pattern";
  std::vector<bool> windowed(static_cast<std::size_t>(stored));
  if (keys.file().array_size(keys.full(kKey))) {
    const std::vector<int> list = keys.per_layer(kKey, stored, 0);
    for (std::size_t i = 0; i < windowed.size(); ++i) windowed[i] = list[i] != 0;
    return windowed;
  }
  const std::size_t period = static_cast<std::size_t>(keys.find_count(kKey, 0).value_or(rule.period));
  for (std::size_t i = 0; i < windowed.size(); ++i) windowed[i] = period == 0 || i % period < period - 1;
  return windowed;
}

// After read_rotation(): layers with a window keep the file's own base and scale, whatever the user asks for.
void read_windows(const Keys& keys, RopeOverrides user, const WindowRule& rule, int stored, ModelConfig& config) {
  if (!rule.used) return;
  const int window = keys.find_count("attention.sliding_window", 0).value_or(rule.size);
  if (window == 0) return;
  user.freq_base.reset();
  user.freq_scale.reset();
  const RopeParams& full = config.layer.front().rope;
  RopeParams rope = read_rope(keys, user, full.style, full.n_rot, full.n_ctx_orig);
  constexpr std::string_view kBase = "rope.freq_base_swa";
  rope.base = keys.find_number(kBase).value_or(rule.base != 0.0f ? rule.base : rope.base);
  if (!(rope.base > 1.0f)) keys.fail(kBase, "expected a number above 1, found {}", rope.base);
  if (rule.unscaled) rope.freq_scale = 1.0f;
  if (rule.no_yarn) {
    rope.ext_factor = 0.0f;
    rope.attn_factor = 1.0f;
  }
  const std::vector<bool> windowed = read_window_layers(keys, rule, stored);
  for (std::size_t i = 0; i < config.layer.size(); ++i) {
    if (!windowed[i]) continue;
    config.layer[i].window = window;
    config.layer[i].rope = rope;
  }
}

// The scale of attention scores, given to the attention op or multiplied into Q.
void read_attention_scale(const Keys& keys, const Architecture& architecture, ModelConfig& config) {
  const bool by_width = config.layers == architecture.layers_scaled_by_width;
  const int length = by_width ? config.dim / config.layer.front().heads : config.head_dim_k;
  if (length < 1)
    keys.fail("attention.head_count", "expected at most {} heads, found {}", config.dim, config.layer.front().heads);
  float scale = architecture.attention_scale_key ? keys.number("attention.scale", 0.0f) : 0.0f;
  if (scale == 0.0f) scale = 1.0f / std::sqrt(static_cast<float>(length));
  (architecture.prescaled_q ? config.q_scale : config.attention_scale) = scale;
}

float read_softcap(const Keys& keys, std::string_view key, float otherwise) {
  const float cap = keys.number(key, otherwise);
  if (cap < 0.0f) keys.fail(key, "expected a number of at least 0, found {}", cap);
  return cap;
}

// What is multiplied to embeddings, branches and logits, and the caps.
void read_scales(const Keys& keys, const Architecture& architecture, ModelConfig& config) {
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
  const Keys keys(file, architecture.name);

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
