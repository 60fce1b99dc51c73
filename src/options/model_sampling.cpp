#include <cmath>

#include "bankml/base/error.hpp"
#include "bankml/options/options.hpp"
#include "options/values.hpp"

namespace bankml {
namespace {

// A metadata value as a number, whatever its stored type; nullopt if it is none.
std::optional<float> number(const GgufFile& file, const std::string& key) {
  try {
    return file.float_value(key);
  } catch (const Error&) {  // another type
  }
  try {
    if (const auto value = file.signed_value(key)) return static_cast<float>(*value);
  } catch (const Error&) {
  }
  try {
    if (const auto text = file.string_value(key)) return std::stof(std::string(*text));
  } catch (const std::exception&) {  // not text, or not a number
  }
  return std::nullopt;
}

struct Key {
  const char* key;   // after "general.sampling."
  const char* flag;  // keeps its value if it was given
  void (*set)(SamplingParams& sampling, float value);
};

constexpr Key kKeys[] = {
    {"top_k", "--top-k", [](SamplingParams& s, float v) { s.top_k = static_cast<std::int32_t>(v); }},
    {"top_p", "--top-p", [](SamplingParams& s, float v) { s.top_p = v; }},
    {"min_p", "--min-p", [](SamplingParams& s, float v) { s.min_p = v; }},
    {"xtc_probability", "--xtc-probability", [](SamplingParams& s, float v) { s.xtc_probability = v; }},
    {"xtc_threshold", "--xtc-threshold", [](SamplingParams& s, float v) { s.xtc_threshold = v; }},
    {"temp", "--temp", [](SamplingParams& s, float v) { s.temperature = v; }},
    {"penalty_last_n", "--repeat-last-n",
     [](SamplingParams& s, float v) { s.repeat_last_n = static_cast<std::int32_t>(v); }},
    {"penalty_repeat", "--repeat-penalty",
     [](SamplingParams& s, float v) {
       if (v > 0.0f && std::isfinite(1.0f / v)) s.repeat_penalty = v;  // with another no request could be answered
     }},
    {"mirostat", "--mirostat", [](SamplingParams& s, float v) { s.mirostat = static_cast<std::int32_t>(v); }},
    {"mirostat_tau", "--mirostat-ent", [](SamplingParams& s, float v) { s.mirostat_tau = v; }},
    {"mirostat_eta", "--mirostat-lr", [](SamplingParams& s, float v) { s.mirostat_eta = v; }},
};

constexpr float kLargest = 1e9f;  // beyond it no such number is meant, nor does it fit an int32

}  // namespace

void apply_model_sampling(const GgufFile& file, Options& options) {
  SamplingParams& sampling = options.server.defaults.sampling;
  const std::string prefix = "general.sampling.";
  for (const Key& row : kKeys) {
    if (options.given.contains(row.flag)) continue;
    const std::optional<float> value = number(file, prefix + row.key);
    if (value && std::abs(*value) <= kLargest) row.set(sampling, *value);
  }
  if (options.given.contains("--samplers") || options.given.contains("--sampling-seq")) return;
  try {
    if (const auto text = file.string_value(prefix + "sequence")) sampling.samplers = parse_sampler_list(*text);
  } catch (const Error&) {  // not text
  }
}

}  // namespace bankml
