#include "model/config_rope.hpp"

#include <cmath>
#include <limits>

#include "base/printable.hpp"

namespace bankml {
namespace {

std::string scaling_type(const ConfigKeys& keys, const RopeOverrides& user) {
  constexpr std::string_view kKey = "rope.scaling.type";
  if (user.scaling) return *user.scaling;
  const std::string_view type = keys.find_text(kKey).value_or("linear");
  if (type != "none" && type != "linear" && type != "yarn" && type != "longrope") {
    keys.fail(kKey, "expected none, linear, yarn or longrope, found {}", printable(type));
  }
  return std::string(type);
}

float file_freq_scale(const ConfigKeys& keys) {
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

RopeParams read_rope(const ConfigKeys& keys, const RopeOverrides& user, RopeStyle style, int n_rot, int n_ctx_orig) {
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

int read_n_rot(const ConfigKeys& keys, int head_dim, bool partial) {
  constexpr std::string_view kKey = "rope.dimension_count";
  const int n_rot = keys.find_count(kKey, 1).value_or(head_dim);
  if (!partial && n_rot != head_dim) keys.fail(kKey, "expected the head length, {}, found {}", head_dim, n_rot);
  if (n_rot > head_dim || n_rot % 2 != 0) {
    keys.fail(kKey, "expected an even number up to the head length, {}, found {}", head_dim, n_rot);
  }
  return n_rot;
}

// Which layers see only a window: a list with one element a layer, or a period, of which the last layer sees all.
std::vector<bool> read_window_layers(const ConfigKeys& keys, const WindowRule& rule, int stored) {
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

}  // namespace

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

void read_rotation(const ConfigKeys& keys, const RopeOverrides& user, const Architecture& architecture,
                   ModelConfig& config) {
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

void read_windows(const ConfigKeys& keys, RopeOverrides user, const WindowRule& rule, int stored, ModelConfig& config) {
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

}  // namespace bankml
