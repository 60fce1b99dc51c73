#include "server/completion_request.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <charconv>
#include <cmath>
#include <limits>

#include "server/fields.hpp"

namespace bankml {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();
constexpr float kMaxAdaptiveDecay = 0.99f;
// All of them are gone through for every token, while other requests wait.
constexpr std::size_t kMostStopWords = 1024, kMostBiases = 1 << 20;

[[noreturn]] void throw_invalid(std::string message) {
  throw Error(ErrorKind::invalid_request, std::move(message));
}

// Refuses what would otherwise be ignored silently although it changes the text.
void refuse_unsupported(const Fields& fields) {
  const auto* grammar = fields.find("grammar");
  if (grammar != nullptr && grammar->is_string() && !grammar->get_string().empty()) {
    throw Error(ErrorKind::unsupported, "field 'grammar': grammars are not supported");
  }
  if (fields.find("json_schema") != nullptr) {
    throw Error(ErrorKind::unsupported, "field 'json_schema': JSON schemas are not supported");
  }
  const auto* lora = fields.find("lora");
  if (lora == nullptr) return;
  if (!lora->is_array()) throw_invalid("field 'lora': expected an array of objects with 'id' and 'scale'");
  if (!lora->get_array().empty()) {
    throw Error(ErrorKind::unsupported, "field 'lora': no adapters are loaded, they are not supported");
  }
}

void read_penalties(const Fields& fields, SamplingParams& sampling) {
  fields.read_checked({"repeat_last_n"}, sampling.repeat_last_n, 0);
  fields.read_clamped("repeat_penalty", sampling.repeat_penalty);
  fields.read_clamped("frequency_penalty", sampling.frequency_penalty);
  fields.read_clamped("presence_penalty", sampling.presence_penalty);
  if (!(sampling.repeat_penalty > 0.0f) || !std::isfinite(1.0f / sampling.repeat_penalty)) {
    throw_invalid(
        fmt::format("field 'repeat_penalty': expected a finite value above 0, got {}", sampling.repeat_penalty));
  }
}

void read_dry(const Fields& fields, SamplingParams& sampling) {
  fields.read_clamped("dry_multiplier", sampling.dry_multiplier);
  const float server_base = sampling.dry_base;
  fields.read_clamped("dry_base", sampling.dry_base);
  if (sampling.dry_base < 1.0f) sampling.dry_base = server_base;
  fields.read_checked({"dry_allowed_length"}, sampling.dry_allowed_length, 0);
  fields.read_checked({"dry_penalty_last_n"}, sampling.dry_penalty_last_n, 0);
  if (const auto* breakers = fields.find("dry_sequence_breakers")) {
    const auto* array = breakers->if_array();
    if (array == nullptr || array->empty()) {
      throw_invalid("field 'dry_sequence_breakers': expected an array of at least one string");
    }
    sampling.dry_sequence_breakers = string_elements(*array, "dry_sequence_breakers");
  }
}

void read_samplers(const Fields& fields, SamplingParams& sampling) {
  const auto* samplers = fields.find("samplers");
  if (samplers == nullptr) return;
  if (const auto* names = samplers->if_array()) {
    sampling.samplers = parse_sampler_names(string_elements(*names, "samplers"));
  } else if (const auto* letters = samplers->if_string()) {
    sampling.samplers = parse_sampler_letters(std::string_view(letters->data(), letters->size()));
  }
}

using LogitBias = std::vector<std::pair<TokenId, float>>;

void add_text_bias(std::string_view text, float bias, const Tokenizer& tokenizer, LogitBias& list) {
  for (const TokenId token : tokenizer.encode(text, false, false)) list.emplace_back(token, bias);
}

void add_id_bias(std::int64_t id, float bias, const Tokenizer& tokenizer, LogitBias& list) {
  if (id >= 0 && id < tokenizer.size()) list.emplace_back(static_cast<TokenId>(id), bias);
}

// A number, or `false` for "never"; nullopt for anything else.
std::optional<float> bias_value(const boost::json::value& value) {
  if (const bool* flag = value.if_bool()) return *flag ? std::nullopt : std::optional(kNever);
  const auto number = as_number(value);
  constexpr double kMax = std::numeric_limits<float>::max();
  return number ? std::optional(static_cast<float>(std::clamp(*number, -kMax, kMax))) : std::nullopt;
}

void forbid_end(const Tokenizer& tokenizer, SamplingParams& sampling) {
  for (const TokenId token : tokenizer.eog_tokens()) sampling.logit_bias.emplace_back(token, kNever);
}

// Replaces the server's list. Entries that don't make sense are skipped, as llama-server does.
void read_logit_bias(const Fields& fields, const Tokenizer& tokenizer, SamplingParams& sampling) {
  const auto* biases = fields.find("logit_bias");
  if (biases == nullptr) return;
  LogitBias list;
  if (const auto* entries = biases->if_array()) {
    for (const auto& entry : *entries) {
      const auto* pair = entry.if_array();
      if (pair == nullptr || pair->size() != 2) continue;
      const auto bias = bias_value((*pair)[1]);
      if (!bias) continue;
      if (const auto* text = (*pair)[0].if_string()) {
        add_text_bias({text->data(), text->size()}, *bias, tokenizer, list);
      } else if ((*pair)[0].is_int64()) {
        add_id_bias((*pair)[0].get_int64(), *bias, tokenizer, list);
      }
    }
  } else if (const auto* object = biases->if_object()) {
    for (const auto& member : *object) {
      const auto bias = bias_value(member.value());
      if (!bias) continue;
      const std::string_view key(member.key().data(), member.key().size());
      std::int64_t id = 0;
      const auto parsed = std::from_chars(key.data(), key.data() + key.size(), id);
      if (!key.empty() && parsed.ec == std::errc() && parsed.ptr == key.data() + key.size()) {
        add_id_bias(id, *bias, tokenizer, list);
      } else {
        add_text_bias(key, *bias, tokenizer, list);
      }
    }
  }
  if (list.size() > kMostBiases) {
    throw_invalid(
        fmt::format("field 'logit_bias': expected biases of at most {} tokens, got {}", kMostBiases, list.size()));
  }
  sampling.logit_bias = std::move(list);
}

void read_sampling(const Fields& fields, const Tokenizer& tokenizer, SamplingParams& sampling) {
  fields.read_wrapped("seed", sampling.seed);
  fields.read_clamped("temperature", sampling.temperature, 0.0f, std::numeric_limits<float>::infinity());
  fields.read_clamped("dynatemp_range", sampling.dynatemp_range);
  fields.read_clamped("dynatemp_exponent", sampling.dynatemp_exponent);
  fields.read_clamped({"top_k"}, sampling.top_k, 0);
  fields.read_clamped("top_p", sampling.top_p, 0.0f, 1.0f);
  fields.read_clamped("min_p", sampling.min_p, 0.0f, 1.0f);
  fields.read_clamped("top_n_sigma", sampling.top_n_sigma);
  fields.read_clamped("typical_p", sampling.typical_p);
  fields.read_clamped("xtc_probability", sampling.xtc_probability, 0.0f, 1.0f);
  fields.read_clamped("xtc_threshold", sampling.xtc_threshold, 0.0f, 1.0f);
  read_penalties(fields, sampling);
  read_dry(fields, sampling);
  fields.read_clamped({"mirostat"}, sampling.mirostat, 0, 2);
  fields.read_clamped("mirostat_tau", sampling.mirostat_tau);
  fields.read_clamped("mirostat_eta", sampling.mirostat_eta);
  fields.read_clamped("adaptive_target", sampling.adaptive_target, std::numeric_limits<float>::lowest(), 1.0f);
  fields.read_clamped("adaptive_decay", sampling.adaptive_decay);
  if (sampling.adaptive_decay < 0.0f || sampling.adaptive_decay > kMaxAdaptiveDecay) {
    throw_invalid(fmt::format("field 'adaptive_decay': expected a value from 0 to {}, got {}", kMaxAdaptiveDecay,
                              sampling.adaptive_decay));
  }
  fields.read_checked({"min_keep"}, sampling.min_keep, 0);
  read_samplers(fields, sampling);
  // What the server's flag forbids is part of its list, so that a list of the request's own takes its place.
  if (sampling.ignore_eos) forbid_end(tokenizer, sampling);
  read_logit_bias(fields, tokenizer, sampling);
  bool ignore_eos = false;
  fields.read("ignore_eos", ignore_eos);
  if (ignore_eos) forbid_end(tokenizer, sampling);
  if (fields.find("ignore_eos") != nullptr) sampling.ignore_eos = ignore_eos;
}

void read_stop(const Fields& fields, std::vector<std::string>& stop) {
  const auto* value = fields.find("stop");
  if (value == nullptr) return;
  std::vector<std::string> words;
  if (const auto* word = value->if_string()) {
    words.emplace_back(*word);
  } else if (const auto* array = value->if_array()) {
    words = string_elements(*array, "stop");
  }
  std::erase_if(words, [](const std::string& word) { return word.empty(); });
  if (words.size() > kMostStopWords) {
    throw_invalid(fmt::format("field 'stop': expected at most {} words, got {}", kMostStopWords, words.size()));
  }
  if (!words.empty()) stop = std::move(words);
}

void read_limits(const Fields& fields, CompletionParams& params) {
  fields.read_checked({"n_predict", "max_completion_tokens", "max_tokens"}, params.n_predict, -1);
  fields.read("cache_prompt", params.cache_prompt);
  fields.read_checked({"n_keep"}, params.n_keep, -1);
  fields.read_checked({"n_discard"}, params.n_discard, 0);
  fields.read_checked({"n_indent"}, params.n_indent, 0);
  fields.read_checked({"n_cache_reuse"}, params.n_cache_reuse, 0);
  fields.read_checked("t_max_predict_ms", params.t_max_predict_ms, -1);
  fields.read_clamped({"n_probs", "logprobs"}, params.n_probs);
  fields.read("post_sampling_probs", params.post_sampling_probs);
  fields.read("return_progress", params.return_progress);
  fields.read("timings_per_token", params.timings_per_token);
  if (const auto* slot = fields.find("id_slot"); slot != nullptr && slot->is_number()) {
    params.id_slot =
        static_cast<int>(std::clamp<std::int64_t>(as_integer(*slot).value_or(-1), Fields::kMinInt, Fields::kMaxInt));
  }
  read_stop(fields, params.stop);
}

void read_reasoning_format(const Fields& fields, std::string& format) {
  fields.read("reasoning_format", format);
  if (!is_reasoning_format(format)) {
    throw_invalid(
        fmt::format("field 'reasoning_format': expected none, auto, deepseek or deepseek-legacy, got '{}'", format));
  }
}

// Arrays of anything but strings are ignored as a whole.
void read_response_fields(const Fields& fields, std::vector<std::string>& names) {
  const auto* value = fields.find("response_fields");
  if (value == nullptr || !value->is_array()) return;
  const auto& array = value->get_array();
  if (std::ranges::all_of(array, [](const auto& name) { return name.is_string(); })) {
    names = string_elements(array, "response_fields");
  }
}

// Names of the numbers in the field `chat_format`.
constexpr std::array kChatFormats = {kChatFormatOfTexts, "peg-simple", kChatFormatOfTemplates, "peg-gemma4",
                                     "peg-minimax-m3"};

// Fields that llama-server's own chat front end fills in for its parsers and grammars. There are none here: what does
// not change the text is checked and repeated, the rest is refused.
void read_parser_fields(const Fields& fields, EchoedSettings& echoed) {
  bool ignored_flag = false;
  for (const std::string_view name : {"reasoning_control", "parse_tool_calls", "echo"}) {
    fields.read(name, ignored_flag);
  }
  std::string ignored_text;
  for (const std::string_view name :
       {"chat_parser", "reasoning_budget_start_tag", "reasoning_budget_end_tag", "reasoning_budget_message"}) {
    fields.read(name, ignored_text);
  }
  int ignored_budget = -1;
  fields.read_checked({"reasoning_budget_tokens"}, ignored_budget, -1);
  for (const std::string_view name : {"reasoning_budget_end_tags", "preserved_tokens", "grammar_triggers"}) {
    const auto* value = fields.find(name);
    if (value == nullptr || (value->is_array() && value->get_array().empty())) continue;
    if (!value->is_array()) {
      throw_invalid(fmt::format("field '{}': expected an array, got {}", name, json_type_name(*value)));
    }
    throw Error(ErrorKind::unsupported, fmt::format("field '{}': only an empty array is supported", name));
  }
  fields.read("grammar_lazy", echoed.grammar_lazy);
  fields.read("generation_prompt", echoed.generation_prompt);
  int format = -1;
  fields.read_checked({"chat_format"}, format, 0, static_cast<int>(kChatFormats.size()) - 1);
  if (format >= 0) echoed.chat_format = kChatFormats[static_cast<std::size_t>(format)];
}

}  // namespace

bool is_reasoning_format(std::string_view name) noexcept {
  static constexpr std::array<std::string_view, 4> kFormats = {"none", "auto", "deepseek", "deepseek-legacy"};
  return std::ranges::find(kFormats, name) != kFormats.end();
}

CompletionRequest parse_completion_request(const boost::json::object& body, const ServerOptions& options,
                                           const Tokenizer& tokenizer, int slots) {
  const Fields fields(body);
  CompletionRequest request;
  request.params = options.defaults;
  request.verbose = options.verbose;
  request.sse_ping_interval_s = options.sse_ping_interval_s;

  fields.read("stream", request.stream);
  fields.read("return_tokens", request.return_tokens);
  fields.read("verbose", request.verbose);
  fields.read("backend_sampling", request.echoed.backend_sampling);
  fields.read_checked({"sse_ping_interval"}, request.sse_ping_interval_s, -1);
  fields.read_checked({"n_cmpl", "n"}, request.copies, 1, slots);
  request.echoed.reasoning_format = options.reasoning_format;
  read_reasoning_format(fields, request.echoed.reasoning_format);
  if (const auto* stream_options = fields.find("stream_options");
      stream_options != nullptr && stream_options->is_object()) {
    Fields(stream_options->get_object()).read("include_usage", request.include_usage);
  }
  read_response_fields(fields, request.response_fields);
  read_parser_fields(fields, request.echoed);
  read_limits(fields, request.params);
  read_sampling(fields, tokenizer, request.params.sampling);
  refuse_unsupported(fields);
  request.echoed.stream = request.stream;
  return request;
}

}  // namespace bankml
