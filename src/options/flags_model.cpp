#include <fmt/format.h>

#include "bankml/base/error.hpp"
#include "model/context_limit.hpp"
#include "options/flag.hpp"
#include "options/values.hpp"

namespace bankml {
namespace {

using Text = const std::string&;

DType to_cache_type(Text text) {
  one_of(text, {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"});
  if (text == "f32") return DType::f32;
  if (text == "f16") return DType::f16;
  if (text == "q8_0") return DType::q8_0;
  throw Error(ErrorKind::unsupported, fmt::format("cache type {} is not supported; f16, f32 and q8_0 are", text));
}

// Sequences of a batch at most, as in llama-server: each has rows of its own in a pass.
constexpr int kMaxSlots = 256;

int to_tokens(Text text, int least = 0) {
  return to_int(text, least, kMaxContext);
}

int to_slots(Text text) {
  const int slots = to_int(text);
  if (slots == 0 || slots > kMaxSlots) {
    bad_value(fmt::format("a number of slots from 1 to {}, or -1 for automatic", kMaxSlots), text);
  }
  return slots;
}

std::set<std::string> to_set(Text text) {
  const std::vector<std::string> items = split_list(text);
  return {items.begin(), items.end()};
}

}  // namespace

FlagSection model_flags() {
  return {
      "Model and context",
      {
          {.names = {"-m", "--model"},
           .value = "FILE",
           .env = "LLAMA_ARG_MODEL",
           .help = "GGUF file",
           .set = [](Options& o, Text v) { o.model_path = v; }},
          {.names = {"-hf", "-hfr", "--hf-repo"},
           .value = "USER/NAME[:QUANT]",
           .env = "LLAMA_ARG_HF_REPO",
           .help = "model from the local hub cache, never from the network; QUANT defaults to Q4_K_M, then Q8_0, then "
                   "the first",
           .set = [](Options& o, Text v) { o.hf_repo = v; }},
          {.names = {"-hff", "--hf-file"},
           .value = "FILE",
           .env = "LLAMA_ARG_HF_FILE",
           .help = "file inside the repository",
           .set = [](Options& o, Text v) { o.hf_file = v; }},
          {.names = {"--offline"},
           .env = "LLAMA_ARG_OFFLINE",
           .help = "never touch the network",
           .no_effect = "bankmld never touches it"},
          {.names = {"-a", "--alias"},
           .value = "A,B",
           .env = "LLAMA_ARG_ALIAS",
           .help = "names of the model in the API (default: the path, or the repository)",
           .set = [](Options& o, Text v) { o.aliases.merge(to_set(v)); },
           .repeatable = true},
          {.names = {"--tags"},
           .value = "A,B",
           .env = "LLAMA_ARG_TAGS",
           .help = "informational, shown by /v1/models",
           .set = [](Options& o, Text v) { o.tags.merge(to_set(v)); },
           .repeatable = true},
          {.names = {"-c", "--ctx-size"},
           .value = "N",
           .env = "LLAMA_ARG_CTX_SIZE",
           .help = "tokens of context, rounded up to 256 (default 0: the model's training length)",
           .set = [](Options& o, Text v) { o.engine.context = to_tokens(v); }},
          {.names = {"-np", "--parallel"},
           .value = "N",
           .env = "LLAMA_ARG_N_PARALLEL",
           .help = "slots: requests answered at the same time (default -1: 4 that share the context)",
           .set = [](Options& o, Text v) { o.engine.slots = to_slots(v); }},
          {.names = {"-kvu", "--kv-unified"},
           .off_names = {"-no-kvu", "--no-kv-unified"},
           .env = "LLAMA_ARG_KV_UNIFIED",
           .help = "every slot may use the whole context (default: off where -np is given)",
           .set = [](Options& o, Text v) { o.engine.unified_kv = v == "1"; }},
          {.names = {"--kv-unified-per-slot"},
           .value = "N",
           .env = "LLAMA_ARG_KV_UNIFIED_PER_SLOT",
           .help = "context of one slot at most; without -c the slots share this much for each of them (default 0: no "
                   "limit)",
           .set = [](Options& o, Text v) { o.engine.context_per_slot = to_tokens(v); }},
          {.names = {"-b", "--batch-size"},
           .value = "N",
           .env = "LLAMA_ARG_BATCH",
           .help = "tokens of a step (default 2048)",
           .set = [](Options& o, Text v) { o.engine.batch = to_tokens(v, 1); }},
          {.names = {"-ub", "--ubatch-size"},
           .value = "N",
           .env = "LLAMA_ARG_UBATCH",
           .help = "tokens of a forward pass (default 512; 0: as -b)",
           .set = [](Options& o, Text v) { o.engine.ubatch = to_tokens(v); }},
          {.names = {"-n", "--predict", "--n-predict"},
           .value = "N",
           .env = "LLAMA_ARG_N_PREDICT",
           .help = "tokens generated at most where a request says nothing (default -1: no limit)",
           .set = [](Options& o, Text v) { o.engine.n_predict = to_int(v); }},
          {.names = {"--keep"},
           .value = "N",
           .help = "tokens kept by a context shift (default 0; -1: the whole prompt)",
           .set = [](Options& o, Text v) { o.server.defaults.n_keep = to_int(v); }},
          {.names = {"--context-shift"},
           .off_names = {"--no-context-shift"},
           .env = "LLAMA_ARG_CONTEXT_SHIFT",
           .help = "drop old tokens instead of stopping when the context is full (default off)",
           .set = [](Options& o, Text v) { o.engine.context_shift = v == "1"; }},
          {.names = {"-cb", "--cont-batching"},
           .off_names = {"-nocb", "--no-cont-batching"},
           .env = "LLAMA_ARG_CONT_BATCHING",
           .help = "compute new prompts while others generate (default on)",
           .set = [](Options& o, Text v) { o.engine.continuous_batching = v == "1"; }},
          {.names = {"-ctk", "--cache-type-k"},
           .value = "TYPE",
           .env = "LLAMA_ARG_CACHE_TYPE_K",
           .help = "K of the cache: f16 (default), f32, q8_0",
           .set = [](Options& o, Text v) { o.engine.cache_type_k = to_cache_type(v); }},
          {.names = {"-ctv", "--cache-type-v"},
           .value = "TYPE",
           .env = "LLAMA_ARG_CACHE_TYPE_V",
           .help = "V of the cache: f16 (default), f32, q8_0",
           .set = [](Options& o, Text v) { o.engine.cache_type_v = to_cache_type(v); }},
          {.names = {"--warmup"},
           .off_names = {"--no-warmup"},
           .help = "one empty pass after loading (default on)",
           .set = [](Options& o, Text v) { o.engine.warmup = v == "1"; }},
          {.names = {"-t", "--threads"},
           .value = "N",
           .env = "LLAMA_ARG_THREADS",
           .help = "CPU threads (default: usable cores)",
           .set = [](Options& o, Text v) { o.threads = to_threads(v); }},
          {.names = {"--rope-scaling"},
           .value = "none|linear|yarn",
           .env = "LLAMA_ARG_ROPE_SCALING_TYPE",
           .help = "position scaling (default: the model's)",
           .set =
               [](Options& o, Text v) {
                 o.rope.scaling = one_of(v, {"none", "linear", "yarn"});
               }},
          {.names = {"--rope-scale"},
           .value = "F",
           .env = "LLAMA_ARG_ROPE_SCALE",
           .help = "context is stretched by F",
           .set = [](Options& o, Text v) { o.rope.freq_scale = 1.0f / to_positive(v); }},
          {.names = {"--rope-freq-base"},
           .value = "F",
           .env = "LLAMA_ARG_ROPE_FREQ_BASE",
           .help = "base of the frequencies",
           .set = [](Options& o, Text v) { o.rope.freq_base = to_positive(v); }},
          {.names = {"--rope-freq-scale"},
           .value = "F",
           .env = "LLAMA_ARG_ROPE_FREQ_SCALE",
           .help = "factor on the frequencies",
           .set = [](Options& o, Text v) { o.rope.freq_scale = to_positive(v); }},
          {.names = {"--yarn-orig-ctx"},
           .value = "N",
           .env = "LLAMA_ARG_YARN_ORIG_CTX",
           .help = "YaRN: original context",
           .set = [](Options& o, Text v) { o.rope.orig_context = to_int(v, 0); }},
          {.names = {"--yarn-ext-factor"},
           .value = "F",
           .env = "LLAMA_ARG_YARN_EXT_FACTOR",
           .help = "YaRN: extrapolation mix",
           .set = [](Options& o, Text v) { o.rope.ext_factor = to_float(v); }},
          {.names = {"--yarn-attn-factor"},
           .value = "F",
           .env = "LLAMA_ARG_YARN_ATTN_FACTOR",
           .help = "YaRN: magnitude",
           .set = [](Options& o, Text v) { o.rope.attn_factor = to_float(v); }},
          {.names = {"--yarn-beta-slow"},
           .value = "F",
           .env = "LLAMA_ARG_YARN_BETA_SLOW",
           .help = "YaRN: high correction dim",
           .set = [](Options& o, Text v) { o.rope.beta_slow = to_float(v); }},
          {.names = {"--yarn-beta-fast"},
           .value = "F",
           .env = "LLAMA_ARG_YARN_BETA_FAST",
           .help = "YaRN: low correction dim",
           .set = [](Options& o, Text v) { o.rope.beta_fast = to_float(v); }},
          {.names = {"-sp", "--special"},
           .help = "show special tokens in the output",
           .set = [](Options& o, Text) { o.server.defaults.special = true; }},
      },
  };
}

FlagSection cache_flags() {
  return {
      "Prompt cache and slots",
      {
          {.names = {"--cache-prompt"},
           .off_names = {"--no-cache-prompt"},
           .env = "LLAMA_ARG_CACHE_PROMPT",
           .help = "default of the request field cache_prompt (default on)",
           .set = [](Options& o, Text v) { o.server.defaults.cache_prompt = v == "1"; }},
          {.names = {"--cache-reuse"},
           .value = "N",
           .env = "LLAMA_ARG_CACHE_REUSE",
           .help = "reuse shifted chunks of at least N tokens (default 0: off)",
           .set = [](Options& o, Text v) { o.server.defaults.n_cache_reuse = to_int(v, 0); }},
          {.names = {"-cram", "--cache-ram"},
           .value = "MIB",
           .env = "LLAMA_ARG_CACHE_RAM",
           .help = "prompt cache in host memory (default 8192, at most a quarter of the available memory; 0: off, -1: "
                   "no limit)",
           .set = [](Options& o, Text v) { o.engine.cache_ram_mib = to_int(v); }},
          {.names = {"--cache-idle-slots"},
           .off_names = {"--no-cache-idle-slots"},
           .env = "LLAMA_ARG_CACHE_IDLE_SLOTS",
           .help = "idle slots go to the prompt cache when a request starts (default on)",
           .set = [](Options& o, Text v) { o.engine.cache_idle_slots = v == "1"; }},
          {.names = {"-sps", "--slot-prompt-similarity"},
           .value = "F",
           .help = "share of a prompt that a slot must hold to be chosen for it (default 0.10; 0: off)",
           .set = [](Options& o, Text v) { o.engine.slot_prompt_similarity = to_float(v); }},
          {.names = {"-ctxcp", "--swa-checkpoints", "--ctx-checkpoints"},
           .value = "N",
           .env = "LLAMA_ARG_CTX_CHECKPOINTS",
           .help = "checkpoints of a slot, for models with a window (default 32; 0: none)",
           .set = [](Options& o, Text v) { o.engine.checkpoints = to_int(v, 0); }},
          {.names = {"-cms", "--checkpoint-min-step"},
           .value = "N",
           .env = "LLAMA_ARG_CHECKPOINT_MIN_SPACING_NT",
           .help = "tokens between checkpoints (default 8192)",
           .set = [](Options& o, Text v) { o.engine.checkpoint_min_step = to_int(v, 0); }},
          {.names = {"--swa-full"},
           .env = "LLAMA_ARG_SWA_FULL",
           .help = "layers with a window keep as many cells as the others, and no checkpoints are made",
           .set = [](Options& o, Text) { o.engine.swa_full = true; }},
          {.names = {"--slot-save-path"},
           .value = "DIR",
           .env = "BANKML_SLOT_SAVE_PATH",  // llama-server has none
           .help = "directory of slot files; without it they are off",
           .set = [](Options& o, Text v) { o.engine.slot_save_path = to_directory(v); }},
          {.names = {"--slots"},
           .off_names = {"--no-slots"},
           .env = "LLAMA_ARG_ENDPOINT_SLOTS",
           .help = "GET /slots (default on)",
           .set = [](Options& o, Text v) { o.server.slots = v == "1"; }},
          {.names = {"--metrics"},
           .env = "LLAMA_ARG_ENDPOINT_METRICS",
           .help = "GET /metrics (default off)",
           .set = [](Options& o, Text) { o.server.metrics = true; }},
          {.names = {"--props"},
           .env = "LLAMA_ARG_ENDPOINT_PROPS",
           .help = "POST /props (default off)",
           .set = [](Options& o, Text) { o.server.props = true; }},
      },
  };
}

}  // namespace bankml
