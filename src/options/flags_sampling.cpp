#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "bankml/base/error.hpp"
#include "options/flag.hpp"
#include "options/values.hpp"

namespace bankml {
namespace {

using Text = const std::string&;

// ID+B or ID-B.
void add_logit_bias(Options& options, Text text) {
  std::istringstream in(text);
  TokenId id = 0;
  char sign = 0;
  std::string amount;
  if (!(in >> id >> sign >> amount) || (sign != '+' && sign != '-')) {
    bad_value("TOKEN+BIAS or TOKEN-BIAS", text);
  }
  // An infinite bias is meant: it forbids the token.
  const float bias = amount == "inf" ? HUGE_VALF : to_float(amount);
  options.server.defaults.sampling.logit_bias.emplace_back(id, sign == '-' ? -bias : bias);
}

void add_dry_breaker(Options& options, Text text) {
  auto& breakers = options.server.defaults.sampling.dry_sequence_breakers;
  if (!options.given.contains("--dry-sequence-breaker")) breakers.clear();  // the first one replaces the defaults
  if (text != "none") breakers.push_back(text);
}

SamplingParams& sampling(Options& options) {
  return options.server.defaults.sampling;
}

}  // namespace

FlagSection sampling_flags() {
  return {
      "Sampling defaults (each request may override them)",
      {
          {.names = {"-s", "--seed"},
           .value = "N",
           .help = "default -1: random",
           .set = [](Options& o, Text v) { sampling(o).seed = to_seed(v); }},
          {.names = {"--temperature", "--temp"},
           .value = "F",
           .env = "LLAMA_ARG_TEMPERATURE",
           .help = "default 0.80; 0: greedy",
           .set = [](Options& o, Text v) { sampling(o).temperature = std::max(0.0f, to_float(v)); }},
          {.names = {"--top-k"},
           .value = "N",
           .env = "LLAMA_ARG_TOP_K",
           .help = "default 40; 0: off",
           .set = [](Options& o, Text v) { sampling(o).top_k = to_int(v); }},
          {.names = {"--top-p"},
           .value = "F",
           .env = "LLAMA_ARG_TOP_P",
           .help = "default 0.95; 1: off",
           .set = [](Options& o, Text v) { sampling(o).top_p = to_float(v); }},
          {.names = {"--min-p"},
           .value = "F",
           .env = "LLAMA_ARG_MIN_P",
           .help = "default 0.05; 0: off",
           .set = [](Options& o, Text v) { sampling(o).min_p = to_float(v); }},
          {.names = {"--top-nsigma", "--top-n-sigma"},
           .value = "F",
           .help = "default -1: off",
           .set = [](Options& o, Text v) { sampling(o).top_n_sigma = to_float(v); }},
          {.names = {"--typical", "--typical-p"},
           .value = "F",
           .help = "default 1: off",
           .set = [](Options& o, Text v) { sampling(o).typical_p = to_float(v); }},
          {.names = {"--xtc-probability"},
           .value = "F",
           .help = "default 0: off",
           .set = [](Options& o, Text v) { sampling(o).xtc_probability = to_float(v); }},
          {.names = {"--xtc-threshold"},
           .value = "F",
           .help = "default 0.1",
           .set = [](Options& o, Text v) { sampling(o).xtc_threshold = to_float(v); }},
          {.names = {"--repeat-last-n"},
           .value = "N",
           .help = "tokens looked back for penalties (default 64; 0: off)",
           .set = [](Options& o, Text v) { sampling(o).repeat_last_n = to_int(v, 0); }},
          {.names = {"--repeat-penalty"},
           .value = "F",
           .env = "LLAMA_ARG_REPEAT_PENALTY",
           .help = "default 1: off",
           .set = [](Options& o, Text v) { sampling(o).repeat_penalty = to_positive(v); }},
          {.names = {"--presence-penalty"},
           .value = "F",
           .env = "LLAMA_ARG_PRESENCE_PENALTY",
           .help = "default 0: off",
           .set = [](Options& o, Text v) { sampling(o).presence_penalty = to_float(v); }},
          {.names = {"--frequency-penalty"},
           .value = "F",
           .env = "LLAMA_ARG_FREQUENCY_PENALTY",
           .help = "default 0: off",
           .set = [](Options& o, Text v) { sampling(o).frequency_penalty = to_float(v); }},
          {.names = {"--dry-multiplier"},
           .value = "F",
           .help = "default 0: off",
           .set = [](Options& o, Text v) { sampling(o).dry_multiplier = to_float(v); }},
          {.names = {"--dry-base"},
           .value = "F",
           .help = "default 1.75",
           .set = [](Options& o, Text v) { sampling(o).dry_base = to_float(v); }},
          {.names = {"--dry-allowed-length"},
           .value = "N",
           .help = "default 2",
           .set = [](Options& o, Text v) { sampling(o).dry_allowed_length = to_int(v); }},
          {.names = {"--dry-penalty-last-n"},
           .value = "N",
           .help = "default 64; 0: off",
           .set = [](Options& o, Text v) { sampling(o).dry_penalty_last_n = to_int(v); }},
          {.names = {"--dry-sequence-breaker"},
           .value = "S",
           .help = "repeatable; the first one replaces newline : \" *; none: no breakers",
           .set = add_dry_breaker,
           .repeatable = true},
          {.names = {"--dynatemp-range"},
           .value = "F",
           .help = "default 0: off",
           .set = [](Options& o, Text v) { sampling(o).dynatemp_range = to_float(v); }},
          {.names = {"--dynatemp-exp"},
           .value = "F",
           .help = "default 1",
           .set = [](Options& o, Text v) { sampling(o).dynatemp_exponent = to_float(v); }},
          {.names = {"--mirostat"},
           .value = "N",
           .help = "1 or 2 (default 0: off)",
           .set = [](Options& o, Text v) { sampling(o).mirostat = to_int(v); }},
          {.names = {"--mirostat-lr"},
           .value = "F",
           .help = "eta (default 0.1)",
           .set = [](Options& o, Text v) { sampling(o).mirostat_eta = to_float(v); }},
          {.names = {"--mirostat-ent"},
           .value = "F",
           .help = "tau (default 5)",
           .set = [](Options& o, Text v) { sampling(o).mirostat_tau = to_float(v); }},
          {.names = {"--adaptive-target"},
           .value = "F",
           .help = "default -1: off",
           .set = [](Options& o, Text v) { sampling(o).adaptive_target = to_float(v); }},
          {.names = {"--adaptive-decay"},
           .value = "F",
           .help = "default 0.9",
           .set = [](Options& o, Text v) { sampling(o).adaptive_decay = to_float(v); }},
          {.names = {"--samplers"},
           .value = "A;B",
           .help = "stages in their order (default penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature)",
           .set = [](Options& o, Text v) { sampling(o).samplers = parse_sampler_list(v); }},
          {.names = {"--sampler-seq", "--sampling-seq"},
           .value = "S",
           .help = "the same as letters (default edskypmxt)",
           .set = [](Options& o, Text v) { sampling(o).samplers = parse_sampler_letters(v); }},
          {.names = {"-l", "--logit-bias"},
           .value = "ID(+/-)B",
           .help = "repeatable",
           .set = add_logit_bias,
           .repeatable = true},
          {.names = {"--ignore-eos"},
           .help = "never end by itself",
           .set = [](Options& o, Text) { sampling(o).ignore_eos = true; }},
          {.names = {"-bs", "--backend-sampling"},
           .env = "LLAMA_ARG_BACKEND_SAMPLING",
           .help = "where sampling runs",
           .no_effect = "sampling has one implementation"},
      },
  };
}

}  // namespace bankml
