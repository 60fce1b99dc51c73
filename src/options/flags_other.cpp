#include "options/flag.hpp"
#include "options/values.hpp"

namespace bankml {
namespace {

using Text = const std::string&;

constexpr std::string_view kWholeDevice = "the whole model runs on one device";
constexpr std::string_view kCpuPlacement = "threads are placed by the operating system";
constexpr std::string_view kMapped = "the file is always mapped and checked";

constexpr std::string_view kNoDownload = "bankmld downloads nothing; give a local file with -m";
constexpr std::string_view kNoGrammar = "output grammars are not built";
constexpr std::string_view kNoEmbeddings = "embeddings and reranking are not built";
constexpr std::string_view kNoLora = "LoRA adapters are not built";
constexpr std::string_view kNoDraft = "speculative decoding is not built";
constexpr std::string_view kNoMedia = "bankmld serves text only";
constexpr std::string_view kNoRouter = "one process serves one model";
constexpr std::string_view kNoTools = "bankmld runs no tools";
constexpr std::string_view kNoTls = "HTTPS is not built; put a proxy in front";

// Values are looked at although they change nothing: a mistake should not come to light on another machine.
void check_integer(Options&, Text value) {
  to_int(value);
}
void check_split(Options&, Text value) {
  one_of(value, {"none", "layer", "row", "tensor"});
}
void check_numa(Options&, Text value) {
  one_of(value, {"distribute", "isolate", "numactl"});
}
void check_fit(Options&, Text value) {
  to_bool(value);
}

void check_json(Options&, Text value) {
  to_json_object(value);
}
void check_json_file(Options&, Text path) {
  to_json_object(read_text_file(path));
}
void check_priority(Options&, Text value) {
  one_of(value, {"-1", "0", "1", "2", "3"});
}

void set_idle_seconds(Options&, Text value) {
  const int seconds = to_int(value, -1);
  if (seconds == 0) to_int(value, 1);  // throws: 0 is no pause
}

// Tools in the peer narrow the origins that may call it, unless the user chose them.
void restrict_origins(Options& options, Text) {
  if (!options.given.contains("--cors-origins")) options.server.cors_origins = "localhost";
}

}  // namespace

FlagSection general_flags() {
  return {
      "General",
      {
          {.names = {"-h", "--usage", "--help"}, .help = "show this and exit"},
          {.names = {"--version"}, .help = "show the version and exit"},
      },
  };
}

FlagSection placement_flags() {
  return {
      "Placement (taken, without effect)",
      {
          {.names = {"-fa", "--flash-attn"},
           .value = "on|off|auto",
           .env = "LLAMA_ARG_FLASH_ATTN",
           .help = "attention kernel",
           .set = [](Options&, Text v) { to_switch(v); },
           .no_effect = "attention has one implementation, equal to on"},
          {.names = {"-sm", "--split-mode"},
           .value = "M",
           .env = "LLAMA_ARG_SPLIT_MODE",
           .help = "split over GPUs",
           .set = check_split,
           .no_effect = kWholeDevice},
          {.names = {"-ts", "--tensor-split"},
           .value = "N0,N1",
           .env = "LLAMA_ARG_TENSOR_SPLIT",
           .help = "shares of GPUs",
           .no_effect = kWholeDevice},
          {.names = {"-mg", "--main-gpu"},
           .value = "N",
           .env = "LLAMA_ARG_MAIN_GPU",
           .help = "first GPU",
           .set = check_integer,
           .no_effect = kWholeDevice},
          {.names = {"-ot", "--override-tensor"},
           .value = "P=B",
           .env = "LLAMA_ARG_OVERRIDE_TENSOR",
           .help = "tensor placement",
           .repeatable = true,
           .no_effect = kWholeDevice},
          {.names = {"-cmoe", "--cpu-moe"},
           .env = "LLAMA_ARG_CPU_MOE",
           .help = "experts on the CPU",
           .no_effect = kWholeDevice},
          {.names = {"-ncmoe", "--n-cpu-moe"},
           .value = "N",
           .env = "LLAMA_ARG_N_CPU_MOE",
           .help = "experts on the CPU",
           .set = check_integer,
           .no_effect = kWholeDevice},
          {.names = {"-ncffn", "--n-cpu-ffn"},
           .value = "N",
           .env = "LLAMA_ARG_N_CPU_FFN",
           .help = "feed-forward parts on the CPU",
           .set = check_integer,
           .no_effect = kWholeDevice},
          {.names = {"-kvo", "--kv-offload"},
           .off_names = {"-nkvo", "--no-kv-offload"},
           .env = "LLAMA_ARG_KV_OFFLOAD",
           .help = "cache on the device",
           .no_effect = kWholeDevice},
          {.names = {"--repack"},
           .off_names = {"-nr", "--no-repack"},
           .env = "LLAMA_ARG_REPACK",
           .help = "weight layout",
           .no_effect = "the layout of weights is chosen by the device"},
          {.names = {"--no-host"}, .env = "LLAMA_ARG_NO_HOST", .help = "host buffers", .no_effect = kWholeDevice},
          {.names = {"--op-offload"},
           .off_names = {"--no-op-offload"},
           .help = "operations on the device",
           .no_effect = kWholeDevice},
          {.names = {"-fit", "--fit"},
           .value = "on|off",
           .env = "LLAMA_ARG_FIT",
           .help = "fit into device memory",
           .set = check_fit,
           .no_effect = kWholeDevice},
          {.names = {"-fitt", "--fit-target"},
           .value = "MIB",
           .env = "LLAMA_ARG_FIT_TARGET",
           .help = "margin of the fit",
           .no_effect = kWholeDevice},
          {.names = {"-fitc", "--fit-ctx"},
           .value = "N",
           .env = "LLAMA_ARG_FIT_CTX",
           .help = "least context of the fit",
           .set = check_integer,
           .no_effect = kWholeDevice},
          {.names = {"--numa"},
           .value = "T",
           .env = "LLAMA_ARG_NUMA",
           .help = "NUMA placement",
           .set = check_numa,
           .no_effect = kCpuPlacement},
          {.names = {"--check-tensors"}, .help = "check tensor data", .no_effect = kMapped},
          {.names = {"-lm", "--load-mode"},
           .value = "MODE",
           .env = "LLAMA_ARG_LOAD_MODE",
           .help = "how weights are read",
           .set =
               [](Options&, Text v) {
                 one_of(v, {"auto", "none", "mmap", "mlock", "mmap+mlock", "dio"});
               },
           .no_effect = kMapped},
          {.names = {"--mlock"}, .help = "keep the model in memory", .no_effect = kMapped},
          {.names = {"--mmap"}, .off_names = {"--no-mmap"}, .help = "map the file", .no_effect = kMapped},
          {.names = {"-tb", "--threads-batch"},
           .value = "N",
           .help = "threads of prompts",
           .set = [](Options&, Text v) { to_int(v); },
           .no_effect = "prompts use the threads of -t"},
          {.names = {"-C", "--cpu-mask"}, .value = "M", .help = "CPU mask", .no_effect = kCpuPlacement},
          {.names = {"-Cr", "--cpu-range"}, .value = "LO-HI", .help = "CPU range", .no_effect = kCpuPlacement},
          {.names = {"--cpu-strict"}, .value = "0|1", .help = "strict placement", .no_effect = kCpuPlacement},
          {.names = {"--prio"}, .value = "N", .help = "priority", .set = check_priority, .no_effect = kCpuPlacement},
          {.names = {"--poll"}, .value = "N", .help = "polling", .set = check_integer, .no_effect = kCpuPlacement},
          {.names = {"-Cb", "--cpu-mask-batch"}, .value = "M", .help = "as -C", .no_effect = kCpuPlacement},
          {.names = {"-Crb", "--cpu-range-batch"}, .value = "LO-HI", .help = "as -Cr", .no_effect = kCpuPlacement},
          {.names = {"--cpu-strict-batch"}, .value = "0|1", .help = "as --cpu-strict", .no_effect = kCpuPlacement},
          {.names = {"--prio-batch"},
           .value = "N",
           .help = "as --prio",
           .set = check_priority,
           .no_effect = kCpuPlacement},
          {.names = {"--poll-batch"},
           .value = "N",
           .help = "as --poll",
           .set = check_integer,
           .no_effect = kCpuPlacement},
          {.names = {"--perf"},
           .off_names = {"--no-perf"},
           .env = "LLAMA_ARG_PERF",
           .help = "internal timings",
           .no_effect = "timings are always taken"},
          {.names = {"-hft", "--hf-token"},
           .value = "T",
           .env = "HF_TOKEN",
           .help = "hub token",
           .no_effect = kNoDownload},
          {.names = {"--sleep-idle-seconds"},
           .value = "N",
           .env = "LLAMA_ARG_SLEEP_IDLE_SECONDS",
           .help = "unload when idle",
           .set = set_idle_seconds,
           .no_effect = "the model stays loaded"},
          {.names = {"--webui-config", "--ui-config"},
           .value = "JSON",
           .env = "LLAMA_ARG_UI_CONFIG",
           .help = "settings of the page",
           .set = check_json,
           .no_effect = "the page has no settings"},
          {.names = {"--webui-config-file", "--ui-config-file"},
           .value = "FILE",
           .env = "LLAMA_ARG_UI_CONFIG_FILE",
           .help = "the same from a file",
           .set = check_json_file,
           .no_effect = "the page has no settings"},
          {.names = {"--spec-draft-n-max"},
           .value = "N",
           .help = "draft tokens at most",
           .set = check_integer,
           .no_effect = kNoDraft},
          {.names = {"--spec-draft-n-min"},
           .value = "N",
           .help = "draft tokens at least",
           .set = check_integer,
           .no_effect = kNoDraft},
          {.names = {"--no-mmproj"}, .help = "no projector", .no_effect = kNoMedia},
          {.names = {"--models-max"},
           .value = "N",
           .env = "LLAMA_ARG_MODELS_MAX",
           .help = "models at the same time",
           .set = check_integer,
           .no_effect = kNoRouter},
          {.names = {"--no-models-autoload"}, .help = "load on request", .no_effect = kNoRouter},
          {.names = {"--lora-init-without-apply"}, .help = "adapters start off", .no_effect = kNoLora},
          {.names = {"--tools"},
           .value = "LIST",
           .env = "LLAMA_ARG_TOOLS",
           .help = "built-in tools; origins default to localhost",
           .set = restrict_origins,
           .no_effect = kNoTools},
      },
  };
}

FlagSection unsupported_flags() {
  return {
      "Not supported",
      {
          {.names = {"-mu", "--model-url"}, .value = "URL", .env = "LLAMA_ARG_MODEL_URL", .refused = kNoDownload},
          {.names = {"-dr", "--docker-repo"}, .value = "R", .env = "LLAMA_ARG_DOCKER_REPO", .refused = kNoDownload},
          {.names = {"-cl", "--cache-list"}, .refused = kNoDownload},
          {.names = {"--rpc"}, .value = "SERVERS", .env = "LLAMA_ARG_RPC", .refused = kWholeDevice},
          {.names = {"--override-kv"}, .value = "K=T:V", .refused = "metadata can't be overridden"},
          {.names = {"--grammar"}, .value = "S", .refused = kNoGrammar},
          {.names = {"--grammar-file"}, .value = "FILE", .refused = kNoGrammar},
          {.names = {"-j", "--json-schema"}, .value = "S", .refused = kNoGrammar},
          {.names = {"-jf", "--json-schema-file"}, .value = "FILE", .refused = kNoGrammar},
          {.names = {"--ssl-key-file"}, .value = "FILE", .env = "LLAMA_ARG_SSL_KEY_FILE", .refused = kNoTls},
          {.names = {"--ssl-cert-file"}, .value = "FILE", .env = "LLAMA_ARG_SSL_CERT_FILE", .refused = kNoTls},
          {.names = {"--embedding", "--embeddings"}, .env = "LLAMA_ARG_EMBEDDINGS", .refused = kNoEmbeddings},
          {.names = {"--pooling"}, .value = "T", .env = "LLAMA_ARG_POOLING", .refused = kNoEmbeddings},
          {.names = {"--embd-normalize"}, .value = "N", .refused = kNoEmbeddings},
          {.names = {"--rerank", "--reranking"}, .env = "LLAMA_ARG_RERANKING", .refused = kNoEmbeddings},
          {.names = {"--lora"}, .value = "F,F", .refused = kNoLora},
          {.names = {"--lora-scaled"}, .value = "F:S", .refused = kNoLora},
          {.names = {"-md", "--model-draft"}, .value = "FILE", .env = "LLAMA_ARG_MODEL_DRAFT", .refused = kNoDraft},
          {.names = {"--spec-type"}, .value = "T", .refused = kNoDraft},
          {.names = {"--spec-synth-len"}, .value = "N", .refused = kNoDraft},
          {.names = {"--spec-synth-rates"}, .value = "R", .refused = kNoDraft},
          {.names = {"-mm", "--mmproj"}, .value = "FILE", .env = "LLAMA_ARG_MMPROJ", .refused = kNoMedia},
          {.names = {"-mmu", "--mmproj-url"}, .value = "URL", .env = "LLAMA_ARG_MMPROJ_URL", .refused = kNoMedia},
          {.names = {"--media-path"}, .value = "DIR", .refused = kNoMedia},
          {.names = {"--models-dir"}, .value = "DIR", .env = "LLAMA_ARG_MODELS_DIR", .refused = kNoRouter},
          {.names = {"--models-preset"}, .value = "FILE", .env = "LLAMA_ARG_MODELS_PRESET", .refused = kNoRouter},
          {.names = {"--tools-runtime"}, .value = "R", .refused = kNoTools},
          {.names = {"--mcp-servers-config"}, .value = "FILE", .refused = kNoTools},
          {.names = {"--mcp-servers-json"}, .value = "JSON", .refused = kNoTools},
          {.names = {"--ui-mcp-proxy"}, .refused = kNoTools},
          {.names = {"-ag", "--agent"}, .refused = kNoTools},
      },
  };
}

}  // namespace bankml
