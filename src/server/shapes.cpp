#include "server/shapes.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "bankml/base/utf8.hpp"

namespace bankml {
namespace {

// The members in the order of an initialiser list, appended.
void append(boost::json::object& object,
            std::initializer_list<std::pair<boost::json::string_view, boost::json::value_ref>> members) {
  for (const auto& member : members) object.insert(member);
}

boost::json::array to_array(const std::vector<std::string>& strings) {
  return boost::json::array(strings.begin(), strings.end());
}

boost::json::array logit_bias_array(const SamplingParams& sampling) {
  boost::json::array list;
  list.reserve(sampling.logit_bias.size());
  for (const auto& [token, bias] : sampling.logit_bias) {
    list.push_back(boost::json::object{{"bias", double{bias}}, {"token", token}});
  }
  return list;
}

boost::json::array sampler_array(const SamplingParams& sampling) {
  boost::json::array names;
  for (const SamplerKind kind : sampling.samplers) {
    const std::string_view name = sampler_name(kind);
    names.emplace_back(boost::json::string_view(name.data(), name.size()));
  }
  return names;
}

void append_sampling(boost::json::object& out, const SamplingParams& s, bool brief) {
  append(out, {{"seed", s.seed},
               {"temperature", double{s.temperature}},
               {"dynatemp_range", double{s.dynatemp_range}},
               {"dynatemp_exponent", double{s.dynatemp_exponent}},
               {"top_k", s.top_k},
               {"top_p", double{s.top_p}},
               {"min_p", double{s.min_p}},
               {"top_n_sigma", double{s.top_n_sigma}},
               {"xtc_probability", double{s.xtc_probability}},
               {"xtc_threshold", double{s.xtc_threshold}},
               {"typical_p", double{s.typical_p}},
               {"repeat_last_n", s.repeat_last_n},
               {"repeat_penalty", double{s.repeat_penalty}},
               {"presence_penalty", double{s.presence_penalty}},
               {"frequency_penalty", double{s.frequency_penalty}},
               {"dry_multiplier", double{s.dry_multiplier}},
               {"dry_base", double{s.dry_base}},
               {"dry_allowed_length", s.dry_allowed_length},
               {"dry_penalty_last_n", s.dry_penalty_last_n}});
  if (!brief) out["dry_sequence_breakers"] = to_array(s.dry_sequence_breakers);
  append(out, {{"mirostat", s.mirostat},
               {"mirostat_tau", double{s.mirostat_tau}},
               {"mirostat_eta", double{s.mirostat_eta}},
               {"adaptive_target", double{s.adaptive_target}},
               {"adaptive_decay", double{s.adaptive_decay}}});
}

double ratio(double dividend, double divisor) noexcept {
  return divisor > 0 ? dividend / divisor : 0.0;
}

boost::json::object probability_entry(const TokenProbability& entry, bool post_sampling) {
  boost::json::array bytes;
  bytes.reserve(entry.bytes.size());
  for (const char byte : entry.bytes) bytes.emplace_back(static_cast<unsigned char>(byte));
  const std::string_view text = std::string_view(entry.bytes).substr(0, complete_utf8_prefix(entry.bytes));
  boost::json::object out{{"id", entry.id}, {"token", boost::json::string_view(text.data(), text.size())}};
  out["bytes"] = std::move(bytes);
  // A token that can't come has no finite logarithm; llama-server shows the lowest float.
  const float p = post_sampling ? entry.p : std::max(entry.p, std::numeric_limits<float>::lowest());
  out[post_sampling ? "prob" : "logprob"] = double{p};
  return out;
}

const char* reuse_name(PromptReuse::From from) noexcept {
  switch (from) {
    case PromptReuse::From::nothing:
      return "none";
    case PromptReuse::From::slot:
      return "slot";
    case PromptReuse::From::ram:
      return "ram";
  }
  return "none";
}

}  // namespace

boost::json::object generation_settings(const CompletionParams& params, const EchoedSettings& echoed, bool brief) {
  boost::json::object out;
  append_sampling(out, params.sampling, brief);
  if (!brief) out["stop"] = to_array(params.stop);
  append(out, {{"max_tokens", params.n_predict},
               {"n_predict", params.n_predict},
               {"n_keep", params.n_keep},
               {"n_discard", params.n_discard},
               {"ignore_eos", params.sampling.ignore_eos},
               {"stream", echoed.stream}});
  if (!brief) out["logit_bias"] = logit_bias_array(params.sampling);
  append(out, {{"n_probs", params.n_probs}, {"min_keep", params.sampling.min_keep}});
  if (!brief) {
    append(out, {{"grammar", ""},
                 {"grammar_lazy", echoed.grammar_lazy},
                 {"grammar_triggers", boost::json::array()},
                 {"preserved_tokens", boost::json::array()}});
  }
  append(out, {{"chat_format", echoed.chat_format},
               {"reasoning_format", echoed.reasoning_format},
               {"reasoning_in_content", echoed.stream && echoed.reasoning_format == "deepseek-legacy"},
               {"generation_prompt", echoed.generation_prompt},
               {"samplers", sampler_array(params.sampling)},
               {"speculative.types", "none"},
               {"timings_per_token", params.timings_per_token},
               {"post_sampling_probs", params.post_sampling_probs},
               {"backend_sampling", echoed.backend_sampling},
               {"lora", boost::json::array()}});
  return out;
}

boost::json::object timings_object(const Timings& timings) {
  // The first token comes with the prompt's last step, so generation rates count the steps after it.
  const int steps = std::max(timings.predicted_n - 1, 0);
  return {{"cache_n", timings.cache_n},
          {"prompt_n", timings.prompt_n},
          {"prompt_ms", timings.prompt_ms},
          {"prompt_per_token_ms", ratio(timings.prompt_ms, timings.prompt_n)},
          {"prompt_per_second", ratio(1e3 * timings.prompt_n, timings.prompt_ms)},
          {"predicted_n", timings.predicted_n},
          {"predicted_ms", timings.predicted_ms},
          {"predicted_per_token_ms", ratio(timings.predicted_ms, steps)},
          {"predicted_per_second", ratio(1e3 * steps, timings.predicted_ms)},
          {"cache_from", reuse_name(timings.reuse.from)},
          {"cache_differs_at", timings.reuse.differs_at},
          {"cache_lost_to_limit", timings.reuse.lost_to_limit},
          {"id_task", timings.task}};
}

boost::json::object progress_object(const Progress& progress) {
  return {{"total", progress.total},
          {"cache", progress.cache},
          {"processed", progress.processed},
          {"time_ms", static_cast<std::int64_t>(progress.time_ms)}};
}

boost::json::object usage_object(int prompt_tokens, const Timings& timings) {
  return {{"completion_tokens", timings.predicted_n},
          {"prompt_tokens", prompt_tokens},
          {"total_tokens", prompt_tokens + timings.predicted_n},
          {"prompt_tokens_details", {{"cached_tokens", timings.cache_n}}}};
}

boost::json::object probability_object(const TokenProbability& probability, bool post_sampling) {
  boost::json::object out = probability_entry(probability, post_sampling);
  boost::json::array top;
  top.reserve(probability.top.size());
  for (const auto& candidate : probability.top) top.push_back(probability_entry(candidate, post_sampling));
  out[post_sampling ? "top_probs" : "top_logprobs"] = std::move(top);
  return out;
}

boost::json::array probability_array(const std::vector<TokenProbability>& probabilities, bool post_sampling) {
  boost::json::array out;
  out.reserve(probabilities.size());
  for (const auto& probability : probabilities) out.push_back(probability_object(probability, post_sampling));
  return out;
}

std::string_view stop_type_name(StopType stop) noexcept {
  switch (stop) {
    case StopType::eos:
      return "eos";
    case StopType::limit:
      return "limit";
    case StopType::word:
      return "word";
    case StopType::none:
      break;
  }
  return "none";
}

std::string_view finish_reason(StopType stop) noexcept {
  return stop == StopType::eos || stop == StopType::word ? "stop" : "length";
}

boost::json::object pick_fields(const boost::json::object& object, const std::vector<std::string>& names) {
  boost::json::object out;
  for (const std::string& name : names) {
    const boost::json::object* level = &object;
    const boost::json::value* found = nullptr;
    for (std::size_t start = 0; level != nullptr && start <= name.size();) {
      const std::size_t end = std::min(name.find('/', start), name.size());
      found = level->if_contains(std::string_view(name).substr(start, end - start));
      level = found != nullptr && end < name.size() ? found->if_object() : nullptr;
      if (end < name.size() && level == nullptr) found = nullptr;
      start = end + 1;
    }
    if (found != nullptr) out[name] = *found;
  }
  return out;
}

std::string random_id(std::size_t length) {
  static constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
  thread_local std::mt19937_64 engine{std::random_device{}()};
  std::uniform_int_distribution<std::size_t> letter(0, kAlphabet.size() - 1);
  std::string id(length, '\0');
  std::ranges::generate(id, [&] { return kAlphabet[letter(engine)]; });
  return id;
}

std::string_view build_info() noexcept {
  return "b11192-bankmld";
}

}  // namespace bankml
