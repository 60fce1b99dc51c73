#include "bankml/options/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "bankml/base/error.hpp"
#include "options/flag.hpp"

namespace bankml {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Variables = std::map<std::string, std::string>;

// Parses with `-m x.gguf` in front unless a test brings its own model.
CommandLine parse_whole(std::vector<const char*> arguments, const Variables& variables = {}) {
  return parse_command_line(arguments, [&](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}
CommandLine parse(std::vector<const char*> arguments, const Variables& variables = {}) {
  arguments.insert(arguments.begin(), {"-m", "x.gguf"});
  return parse_whole(std::move(arguments), variables);
}
Options options_of(std::vector<const char*> arguments, const Variables& variables = {}) {
  return parse(std::move(arguments), variables).options;
}
std::string error_of(std::vector<const char*> arguments, const Variables& variables = {}) {
  try {
    parse(std::move(arguments), variables);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "bankml-options-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string write(const std::string& name, const std::string& text) const {
    const std::filesystem::path file = path_ / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return file.string();
  }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

// --- defaults (docs/cli.md) ---

TEST(Options, DefaultsOfModelAndContext) {
  const Options o = options_of({});
  EXPECT_EQ(o.model_path, "x.gguf");
  EXPECT_EQ(o.model_id, "x.gguf");
  EXPECT_THAT(o.aliases, IsEmpty());
  EXPECT_EQ(o.engine.context, 0);
  EXPECT_EQ(o.engine.slots, 4);
  EXPECT_TRUE(o.engine.unified_kv);
  EXPECT_EQ(o.engine.batch, 2048);
  EXPECT_EQ(o.engine.ubatch, 512);
  EXPECT_EQ(o.engine.n_predict, -1);
  EXPECT_EQ(o.server.defaults.n_keep, 0);
  EXPECT_FALSE(o.engine.context_shift);
  EXPECT_EQ(o.engine.cache_type_k, DType::f16);
  EXPECT_EQ(o.engine.cache_type_v, DType::f16);
  EXPECT_TRUE(o.engine.warmup);
  EXPECT_FALSE(o.rope.scaling.has_value());
  EXPECT_FALSE(o.rope.freq_base.has_value());
  EXPECT_FALSE(o.server.defaults.special);
}

TEST(Options, DefaultsOfPromptCacheAndSlots) {
  const Options o = options_of({});
  EXPECT_TRUE(o.server.defaults.cache_prompt);
  EXPECT_EQ(o.server.defaults.n_cache_reuse, 0);
  EXPECT_FALSE(o.engine.cache_ram_mib.has_value());
  EXPECT_EQ(o.engine.slot_prompt_similarity, 0.1f);
  EXPECT_TRUE(o.engine.slot_save_path.empty());
  EXPECT_TRUE(o.server.slots);
  EXPECT_FALSE(o.server.metrics);
  EXPECT_FALSE(o.server.props);
}

TEST(Options, DefaultsOfHttp) {
  const ServerOptions http = options_of({}).server;
  EXPECT_THAT(http.hosts, ElementsAre("127.0.0.1"));
  EXPECT_EQ(http.port, 8080);
  EXPECT_FALSE(http.reuse_port);
  EXPECT_EQ(http.api_prefix, "");
  EXPECT_THAT(http.policy.api_keys, IsEmpty());
  EXPECT_EQ(http.cors_origins, "localhost");
  EXPECT_EQ(options_of({"--api-key", "k"}).server.cors_origins, "*");
  EXPECT_EQ(http.cors_methods, "GET, POST, DELETE, OPTIONS");
  EXPECT_EQ(http.cors_headers, "*");
  EXPECT_TRUE(http.cors_credentials);
  EXPECT_EQ(http.timeout_s, 3600);
  EXPECT_EQ(http.threads, -1);
  EXPECT_EQ(http.sse_ping_interval_s, 30);
  EXPECT_TRUE(http.ui);
}

TEST(Options, DefaultsOfChatAndLog) {
  const Options o = options_of({});
  EXPECT_TRUE(o.chat.jinja);
  EXPECT_EQ(o.chat.chat_template, "");
  EXPECT_TRUE(o.chat.template_kwargs.empty());
  EXPECT_TRUE(o.chat.prefill_assistant);
  EXPECT_THAT(o.server.defaults.stop, IsEmpty());
  EXPECT_EQ(o.log.verbosity, 3);
  EXPECT_FALSE(o.server.verbose);
}

TEST(Options, DefaultsOfSampling) {
  const SamplingParams s = options_of({}).server.defaults.sampling;
  EXPECT_EQ(s.seed, 0xFFFFFFFFu);
  EXPECT_EQ(s.temperature, 0.8f);
  EXPECT_EQ(s.top_k, 40);
  EXPECT_EQ(s.top_p, 0.95f);
  EXPECT_EQ(s.min_p, 0.05f);
  EXPECT_EQ(s.top_n_sigma, -1.0f);
  EXPECT_EQ(s.typical_p, 1.0f);
  EXPECT_EQ(s.xtc_probability, 0.0f);
  EXPECT_EQ(s.xtc_threshold, 0.1f);
  EXPECT_EQ(s.repeat_last_n, 64);
  EXPECT_EQ(s.repeat_penalty, 1.0f);
  EXPECT_EQ(s.presence_penalty, 0.0f);
  EXPECT_EQ(s.frequency_penalty, 0.0f);
  EXPECT_EQ(s.dry_multiplier, 0.0f);
  EXPECT_EQ(s.dry_base, 1.75f);
  EXPECT_EQ(s.dry_allowed_length, 2);
  EXPECT_EQ(s.dry_penalty_last_n, 64);
  EXPECT_THAT(s.dry_sequence_breakers, ElementsAre("\n", ":", "\"", "*"));
  EXPECT_EQ(s.dynatemp_range, 0.0f);
  EXPECT_EQ(s.dynatemp_exponent, 1.0f);
  EXPECT_EQ(s.mirostat, 0);
  EXPECT_EQ(s.mirostat_eta, 0.1f);
  EXPECT_EQ(s.mirostat_tau, 5.0f);
  EXPECT_THAT(s.logit_bias, IsEmpty());
  EXPECT_FALSE(s.ignore_eos);
}

// --- parsing rules (docs/cli.md 1) ---

TEST(Options, ReadsUnderscoresAsDashesInLongFlags) {
  EXPECT_EQ(options_of({"--cache_ram", "100"}).engine.cache_ram_mib, 100);
}

TEST(Options, TakesTheNextArgumentAsValueWhateverItLooksLike) {
  EXPECT_EQ(options_of({"--cache-ram", "-1"}).engine.cache_ram_mib, -1);
  EXPECT_EQ(options_of({"--chat-template", "--jinja"}).chat.chat_template, "--jinja");
}

TEST(Options, RefusesValuesAfterAnEqualsSign) {
  EXPECT_THAT(error_of({"--port=80"}), HasSubstr("unknown flag '--port=80'"));
}

TEST(Options, RefusesUnknownFlags) {
  EXPECT_THAT(error_of({"--nonsense"}), HasSubstr("unknown flag '--nonsense'"));
  EXPECT_THAT(error_of({"stray"}), HasSubstr("unknown flag 'stray'"));
}

TEST(Options, RefusesAMissingValue) {
  EXPECT_THAT(error_of({"--port"}), HasSubstr("--port: expected a value"));
}

TEST(Options, IgnoresTextAfterAnInteger) {
  EXPECT_EQ(options_of({"-c", "512abc"}).engine.context, 512);
}

TEST(Options, RefusesBadNumbersNamingFlagAndText) {
  EXPECT_EQ(error_of({"--port", "abc"}), "--port: expected an integer, got 'abc'");
  EXPECT_EQ(error_of({"-c", "99999999999"}), "-c: expected an integer from 0 to 16777216, got '99999999999'");
  EXPECT_EQ(error_of({"-c", "16777217"}), "-c: expected an integer from 0 to 16777216, got '16777217'");
  EXPECT_LT(error_of({"--port", std::string(100'000, 'x').c_str()}).size(), 200u);
  EXPECT_EQ(error_of({"--chat-template-file", "/dev/zero"}),
            "--chat-template-file: the file '/dev/zero' has more than 67108864 bytes");
  EXPECT_EQ(error_of({"--temp", "warm"}), "--temp: expected a number, got 'warm'");
  EXPECT_EQ(error_of({"--temp", "nan"}), "--temp: expected a finite number, got 'nan'");
  EXPECT_THAT(error_of({"--port", "70000"}), HasSubstr("--port: expected a port from 0 to 65535"));
  EXPECT_THAT(error_of({"-np", "0"}), HasSubstr("-np: "));
  EXPECT_THAT(error_of({"--repeat-last-n", "-1"}), HasSubstr("--repeat-last-n: expected an integer of at least 0"));
  EXPECT_THAT(error_of({"--repeat-penalty", "0"}), HasSubstr("--repeat-penalty: expected a number above 0"));
}

// A setting that stands in the file as a comment must act once the comment is taken off.
TEST(Options, KnowsEveryVariableOfTheServiceFile) {
  const Folder folder;
  const std::string keys = folder.write("keys", "");
  std::ifstream in(BANKML_SOURCE_DIR "/systemd/bankmld.env");
  std::string settings;
  int count = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with('#')) line.erase(0, 1);
    const std::size_t equals = line.find('=');
    if (equals == std::string::npos || line.find(' ') < equals) continue;
    const std::string name = line.substr(0, equals);
    std::string value = line.substr(equals + 1);
    if (value.starts_with('/')) value = name.ends_with("_PATH") ? folder.path() : keys;  // another machine's
    settings += name + "=" + value + "\n";
    ++count;
  }
  EXPECT_GT(count, 20);
  const CommandLine line = parse({"--env-file", folder.write("settings", settings).c_str()});
  for (const std::string& warning : line.warnings) EXPECT_THAT(warning, Not(HasSubstr("there is no such variable")));
  EXPECT_EQ(line.options.engine.slot_save_path, folder.path());
}

TEST(Options, NamesTheLimitOfSizesThatNoMachineHas) {
  const std::string slots = "expected a number of slots from 1 to 256, or -1 for automatic, got ";
  EXPECT_EQ(error_of({"-np", "2147483647"}), "-np: " + slots + "'2147483647'");
  EXPECT_EQ(error_of({"-np", "257"}), "-np: " + slots + "'257'");
  EXPECT_EQ(options_of({"-np", "256"}).engine.slots, 256);
  EXPECT_EQ(error_of({"-b", "2147483647"}), "-b: expected an integer from 1 to 16777216, got '2147483647'");
  EXPECT_EQ(error_of({"-ub", "99999999999"}), "-ub: expected an integer from 0 to 16777216, got '99999999999'");
  EXPECT_EQ(error_of({"--kv-unified-per-slot", "16777217"}),
            "--kv-unified-per-slot: expected an integer from 0 to 16777216, got '16777217'");
  EXPECT_EQ(error_of({"-t", "1025"}), "-t: expected an integer of at most 1024, got '1025'");
  EXPECT_EQ(error_of({"--threads-http", "100000"}),
            "--threads-http: expected an integer of at most 1024, got '100000'");
  EXPECT_EQ(error_of({"-c", "-99999999999999999999"}),
            "-c: expected an integer from 0 to 16777216, got '-99999999999999999999'");
}

TEST(Options, SaysWhatHappensToThinking) {
  const Options usual = options_of({});
  EXPECT_EQ(usual.server.reasoning_format, "deepseek");
  EXPECT_TRUE(usual.chat.thinking);
  EXPECT_TRUE(usual.chat.preserve_reasoning);
  const Options o = options_of(
      {"--reasoning-format", "none", "--reasoning", "off", "--reasoning-effort", "high", "--no-reasoning-preserve"});
  EXPECT_EQ(o.server.reasoning_format, "none");
  EXPECT_FALSE(o.chat.thinking);
  EXPECT_EQ(o.chat.reasoning_effort, "high");
  EXPECT_FALSE(o.chat.preserve_reasoning);
  EXPECT_TRUE(options_of({"--reasoning", "auto"}).chat.thinking);
  EXPECT_FALSE(usual.server.skip_chat_parsing);
  EXPECT_TRUE(options_of({"--skip-chat-parsing"}).server.skip_chat_parsing);
}

TEST(Options, RefusesABudgetOfThinking) {
  options_of({"--reasoning-budget", "-1"});
  EXPECT_THAT(error_of({"--reasoning-budget", "0"}), HasSubstr("--reasoning-budget: thinking is not cut off"));
}

TEST(Options, RefusesBadEnums) {
  EXPECT_THAT(error_of({"-ctk", "q7_0"}), HasSubstr("-ctk: expected one of f32, f16"));
  EXPECT_THAT(error_of({"-ctv", "q4_0"}), HasSubstr("-ctv: cache type q4_0 is not supported"));
  EXPECT_THAT(error_of({"-fa", "maybe"}), HasSubstr("-fa: expected on, off or auto"));
  EXPECT_THAT(error_of({"--reasoning-format", "aloud"}), HasSubstr("--reasoning-format: expected one of none"));
}

TEST(Options, TakesEverySpellingOfOnOffAuto) {
  for (const char* text : {"on", "off", "auto", "1", "0", "-1", "true", "false", "enabled", "disabled"}) {
    EXPECT_EQ(error_of({"--flash-attn", text}), "no error") << text;
  }
}

TEST(Options, LastUseOfAFlagWinsWithAWarning) {
  const CommandLine line = parse({"--port", "1", "--port", "2"});
  EXPECT_EQ(line.options.server.port, 2);
  EXPECT_THAT(line.warnings, ElementsAre(HasSubstr("--port is given more than once")));
}

TEST(Options, OnOffFlagsHaveTheirOpposite) {
  EXPECT_FALSE(options_of({"--no-slots"}).server.slots);
  EXPECT_TRUE(options_of({"--no-slots", "--slots"}).server.slots);
  EXPECT_FALSE(options_of({"--no-webui"}).server.ui);
}

TEST(Options, HelpAndVersionNeedNoModel) {
  EXPECT_EQ(parse_whole({"-h"}).action, CommandLine::Action::help);
  EXPECT_EQ(parse_whole({"--usage"}).action, CommandLine::Action::help);
  EXPECT_EQ(parse_whole({"--version"}).action, CommandLine::Action::version);
}

// docs/http-api.md, 17: the server answers then what needs no model.
TEST(Options, MayNameNoModel) {
  const Options o = parse_whole({"--port", "0"}).options;
  EXPECT_THAT(o.model_path, IsEmpty());
  EXPECT_EQ(o.server.cors_origins, "*");
}

TEST(Options, SaysWhichFlagsHaveNoEffect) {
  EXPECT_THAT(parse({"-sm", "layer"}).warnings, ElementsAre(HasSubstr("-sm has no effect: ")));
}

// As llama-server does with the same command lines.
TEST(Options, RefusesBadValuesAlsoOfFlagsWithoutEffect) {
  const std::vector<std::vector<const char*>> bad = {{"-sm", "x"},         {"--numa", "x"},
                                                     {"--prio", "9"},      {"--prio", "-2"},
                                                     {"--poll", "x"},      {"-fit", "maybe"},
                                                     {"-fitc", "x"},       {"-ncmoe", "x"},
                                                     {"--ui-config", "{"}, {"--spec-draft-n-max", "x"},
                                                     {"-mg", "x"},         {"-fitc", "banana"},
                                                     {"--prio", "low"},    {"--ui-config-file", "/nowhere"}};
  for (const auto& arguments : bad) EXPECT_THAT(error_of(arguments), HasSubstr(arguments[0])) << arguments[1];
  EXPECT_EQ(error_of({"-sm", "row", "--prio", "3", "-fit", "on", "--numa", "isolate", "--ui-config", "{}"}),
            "no error");
}

TEST(Options, RefusesAWindowOfTheDryPenaltyBelowZero) {
  EXPECT_THAT(error_of({"--dry-penalty-last-n", "-1"}), HasSubstr("--dry-penalty-last-n"));
}

TEST(Options, RefusesFlagsWhoseSilenceWouldMislead) {
  EXPECT_THAT(error_of({"--grammar", "root ::= x"}), HasSubstr("--grammar: not supported"));
  EXPECT_THAT(error_of({"--ssl-cert-file", "c.pem"}), HasSubstr("--ssl-cert-file: not supported"));
}

TEST(Options, EveryFlagThatActsOrIsTakenHasHelp) {
  for (const FlagSection& section : flag_sections()) {
    for (const Flag& flag : section.flags) EXPECT_TRUE(!flag.help.empty() || !flag.refused.empty()) << flag.name();
  }
}

TEST(Options, NoTwoFlagsShareAName) {
  std::set<std::string_view> names;
  for (const FlagSection& section : flag_sections()) {
    for (const Flag& flag : section.flags) {
      for (const auto name : flag.names) EXPECT_TRUE(names.insert(name).second) << name;
      for (const auto name : flag.off_names) EXPECT_TRUE(names.insert(name).second) << name;
    }
  }
}

TEST(Usage, NamesFlagsWithTheirVariables) {
  EXPECT_THAT(usage(), HasSubstr("-c, --ctx-size N"));
  EXPECT_THAT(usage(), HasSubstr("[LLAMA_ARG_CTX_SIZE]"));
}

TEST(Flags, ContextOfASlotAndBatchingReachTheEngine) {
  const EngineOptions engine = options_of({"--kv-unified-per-slot", "300", "--no-cont-batching"}).engine;
  EXPECT_EQ(engine.context_per_slot, 300);
  EXPECT_FALSE(engine.continuous_batching);
}

// --- environment ---

TEST(CommandLineEnvironment, IsWeakerThanTheCommandLine) {
  const CommandLine line = parse({"--port", "2"}, {{"LLAMA_ARG_PORT", "1"}});
  EXPECT_EQ(line.options.server.port, 2);
  EXPECT_THAT(line.warnings, Contains(HasSubstr("LLAMA_ARG_PORT")));
}

TEST(CommandLineEnvironment, IsStrongerThanDefaults) {
  EXPECT_EQ(options_of({}, {{"LLAMA_ARG_N_PREDICT", "7"}}).engine.n_predict, 7);
  EXPECT_EQ(parse_whole({}, {{"LLAMA_ARG_MODEL", "e.gguf"}}).options.model_path, "e.gguf");
}

TEST(CommandLineEnvironment, TurnsOnOffFlagsByTheirValue) {
  for (const char* no : {"0", "off", "false", "disabled"})
    EXPECT_FALSE(options_of({}, {{"LLAMA_ARG_UI", no}}).server.ui);
  for (const char* yes : {"1", "on", "true", "enabled"}) {
    EXPECT_TRUE(options_of({}, {{"LLAMA_ARG_CONTEXT_SHIFT", yes}}).engine.context_shift);
  }
  EXPECT_EQ(error_of({}, {{"LLAMA_ARG_UI", "maybe"}}), "LLAMA_ARG_UI: expected on or off, got 'maybe'");
}

TEST(CommandLineEnvironment, HonoursTheNegatedName) {
  EXPECT_FALSE(options_of({}, {{"LLAMA_ARG_NO_CACHE_PROMPT", ""}}).server.defaults.cache_prompt);
}

TEST(CommandLineEnvironment, ValuelessFlagsActOnATrueValueOnly) {
  EXPECT_TRUE(options_of({}, {{"LLAMA_ARG_ENDPOINT_METRICS", "1"}}).server.metrics);
  EXPECT_FALSE(options_of({}, {{"LLAMA_ARG_ENDPOINT_METRICS", "0"}}).server.metrics);
  EXPECT_FALSE(options_of({}, {{"LLAMA_ARG_ENDPOINT_METRICS", "perhaps"}}).server.metrics);
}

TEST(Options, ServesADirectoryThatExists) {
  const Folder folder;
  const std::string file = folder.write("site/index.html", "");
  const std::string site = std::filesystem::path(file).parent_path().string();
  EXPECT_EQ(options_of({"--path", site.c_str()}).server.static_path, site);
  EXPECT_EQ(error_of({"--path", file.c_str()}), "--path: expected an existing directory, got '" + file + "'");
}

TEST(Options, ShowsTextsOfSlotsWhereTheEnvironmentHasANumberOtherThanZero) {
  constexpr const char* kName = "LLAMA_SERVER_SLOTS_DEBUG";
  EXPECT_FALSE(options_of({}).server.slot_texts);
  for (const char* off : {"0", "", "no"}) EXPECT_FALSE(options_of({}, {{kName, off}}).server.slot_texts) << off;
  const Options on = options_of({}, {{kName, "1"}});
  EXPECT_TRUE(on.server.slot_texts);
  EXPECT_TRUE(on.engine.slot_texts);
}

TEST(CommandLineEnvironment, RefusesBadValuesNamingTheVariable) {
  EXPECT_EQ(error_of({}, {{"LLAMA_ARG_PORT", "x"}}), "LLAMA_ARG_PORT: expected an integer, got 'x'");
}

TEST(CommandLineEnvironment, OwnVariablesAreOverriddenByFlags) {
  const Variables own = {{"BANKML_CACHE_RAM", "64"}, {"BANKML_CACHE_TYPE", "q8_0"}};
  EXPECT_EQ(options_of({}, own).engine.cache_ram_mib, 64);
  EXPECT_EQ(options_of({}, own).engine.cache_type_k, DType::q8_0);
  EXPECT_EQ(options_of({}, own).engine.cache_type_v, DType::q8_0);
  EXPECT_EQ(options_of({"-cram", "0"}, own).engine.cache_ram_mib, 0);
  EXPECT_EQ(options_of({"-ctv", "f32"}, own).engine.cache_type_v, DType::f32);
  EXPECT_THAT(error_of({}, {{"BANKML_CACHE_TYPE", "int3"}}), HasSubstr("BANKML_CACHE_TYPE: expected one of"));
}

// --- single flags ---

TEST(Flags, AliasesAreStrippedAndOrderedByBytes) {
  EXPECT_THAT(options_of({"-a", " zeta , Alpha,beta"}).aliases, ElementsAre("Alpha", "beta", "zeta"));
  EXPECT_THAT(options_of({"-a", "b", "-a", "a"}).aliases, ElementsAre("a", "b")) << "llama-server adds them";
}

TEST(Flags, AutomaticSlotsAreFourThatShareTheContext) {
  EXPECT_EQ(options_of({"-np", "-7"}).engine.slots, 4);
  EXPECT_TRUE(options_of({"-np", "-7", "--no-kv-unified"}).engine.unified_kv);
  EXPECT_EQ(options_of({"-np", "2"}).engine.slots, 2);
  EXPECT_FALSE(options_of({"-np", "2"}).engine.unified_kv);
  EXPECT_TRUE(options_of({"-np", "2", "-kvu"}).engine.unified_kv);
}

TEST(Flags, IdleSlotsAreNotSavedWithoutACache) {
  EXPECT_TRUE(options_of({}).engine.cache_idle_slots);
  const CommandLine line = parse({"--cache-ram", "0"});
  EXPECT_FALSE(line.options.engine.cache_idle_slots);
  EXPECT_THAT(line.warnings, ElementsAre(HasSubstr("idle slots are not saved")));
}

TEST(Flags, SeedIsAnUnsigned32BitNumber) {
  EXPECT_EQ(options_of({"--seed", "42"}).server.defaults.sampling.seed, 42u);
  EXPECT_EQ(options_of({"--seed", "-1"}).server.defaults.sampling.seed, 0xFFFFFFFFu);
  EXPECT_EQ(options_of({"--seed", "4294967295"}).server.defaults.sampling.seed, 0xFFFFFFFFu);
}

TEST(Flags, NegativeTemperatureIsZero) {
  EXPECT_EQ(options_of({"--temp", "-1"}).server.defaults.sampling.temperature, 0.0f);
}

TEST(Flags, FirstDryBreakerReplacesTheDefaults) {
  EXPECT_THAT(options_of({"--dry-sequence-breaker", "a", "--dry-sequence-breaker", "b"})
                  .server.defaults.sampling.dry_sequence_breakers,
              ElementsAre("a", "b"));
  EXPECT_THAT(options_of({"--dry-sequence-breaker", "none"}).server.defaults.sampling.dry_sequence_breakers, IsEmpty());
}

TEST(Flags, EscapesAreReadInStopWordsAndBreakers) {
  const Options read = options_of({"-r", "a\\nb", "-r", "\\x41\\q", "--dry-sequence-breaker", "\\t"});
  EXPECT_THAT(read.server.defaults.stop, ElementsAre("a\nb", "A\\q"));
  EXPECT_THAT(read.server.defaults.sampling.dry_sequence_breakers, ElementsAre("\t"));
  EXPECT_THAT(options_of({"-r", "a\\nb", "--no-escape"}).server.defaults.stop, ElementsAre("a\\nb"));
}

TEST(Flags, LogitBiasTakesASign) {
  const auto bias = options_of({"-l", "15+1.5", "-l", "7-2", "-l", "9-inf"}).server.defaults.sampling.logit_bias;
  ASSERT_EQ(bias.size(), 3u);
  EXPECT_EQ(bias[0], (std::pair<TokenId, float>(15, 1.5f)));
  EXPECT_EQ(bias[1], (std::pair<TokenId, float>(7, -2.0f)));
  EXPECT_EQ(bias[2].second, -HUGE_VALF);
  EXPECT_THAT(error_of({"-l", "15"}), HasSubstr("expected TOKEN+BIAS"));
}

TEST(Flags, ApiKeysAreCsvWithQuotesAndEmptyOnesDropped) {
  EXPECT_THAT(options_of({"--api-key", "a,,\"b,c\",d"}).server.policy.api_keys, ElementsAre("a", "b,c", "d"));
}

TEST(Flags, ApiKeyFileHasCommentsAndEmptyLines) {
  const Folder folder;
  const std::string file = folder.write("keys", "# ours\none\n\ntwo\r\n");
  EXPECT_THAT(options_of({"--api-key-file", file.c_str()}).server.policy.api_keys, ElementsAre("one", "two"));
  EXPECT_THAT(error_of({"--api-key-file", "/nonexistent/keys"}), HasSubstr("--api-key-file: can't read"));
}

TEST(Flags, HostsAreAListAndNeverEmpty) {
  EXPECT_THAT(options_of({"--host", "0.0.0.0, /run/b.sock"}).server.hosts, ElementsAre("0.0.0.0", "/run/b.sock"));
  EXPECT_THAT(options_of({"--host", "::1"}, {{"LLAMA_ARG_HOST", "10.0.0.1"}}).server.hosts, ElementsAre("::1"));
  EXPECT_THAT(error_of({"--host", ""}), HasSubstr("--host: "));
}

TEST(Flags, FreePortWorksWithOneAddressOnly) {
  EXPECT_EQ(error_of({"--port", "0", "--host", "127.0.0.1,/run/b.sock"}), "no error");
  EXPECT_THAT(error_of({"--port", "0", "--host", "127.0.0.1,::1"}), HasSubstr("--port: 0 works with one --host only"));
}

TEST(Flags, ApiPrefixHasNoSlashAtTheEnd) {
  EXPECT_EQ(options_of({"--api-prefix", "/p"}).server.api_prefix, "/p");
  EXPECT_THAT(error_of({"--api-prefix", "/p/"}), HasSubstr("--api-prefix: "));
}

TEST(Flags, SlotSavePathMustBeADirectory) {
  const Folder folder;
  EXPECT_EQ(options_of({"--slot-save-path", folder.path().c_str()}).engine.slot_save_path, folder.path());
  EXPECT_THAT(error_of({"--slot-save-path", "/nonexistent"}), HasSubstr("expected an existing directory"));
}

TEST(Flags, TemplateComesFromTextOrFile) {
  const Folder folder;
  const std::string file = folder.write("t.jinja", "{{ messages }}");
  EXPECT_EQ(options_of({"--chat-template-file", file.c_str()}).chat.chat_template, "{{ messages }}");
  EXPECT_EQ(options_of({"--chat-template", "chatml"}).chat.chat_template, "chatml");
}

TEST(Flags, ReasoningOnNamesTheTemplateVariable) {
  const auto kwargs = options_of({"--reasoning", "on", "--chat-template-kwargs", R"({"a": 1})"}).chat.template_kwargs;
  EXPECT_EQ(kwargs, (boost::json::object{{"enable_thinking", true}, {"a", 1}}));
  EXPECT_TRUE(options_of({"--reasoning", "off"}).chat.template_kwargs.empty());
}

TEST(Flags, TemplateFilesLoseTheNewlineAtTheirEnd) {
  const Folder folder;
  const std::string file = folder.write("t.jinja", "{{ messages }}\n\n");
  EXPECT_EQ(options_of({"--chat-template-file", file.c_str()}).chat.chat_template, "{{ messages }}\n");
}

TEST(Flags, WithoutJinjaOnlyBuiltInFormatsAreNames) {
  EXPECT_EQ(error_of({"--no-jinja", "--chat-template", "chatml"}), "no error");
  EXPECT_THAT(error_of({"--no-jinja", "--chat-template", "nosuch"}),
              HasSubstr("no built-in chat format is called 'nosuch'"));
}

TEST(Flags, TemplateVariablesAreAJsonObject) {
  const auto kwargs = options_of({"--chat-template-kwargs", R"({"a": 1})"}).chat.template_kwargs;
  EXPECT_EQ(kwargs.at("a").as_int64(), 1);
  EXPECT_THAT(error_of({"--chat-template-kwargs", "[1]"}), HasSubstr("expected a JSON object"));
  EXPECT_THAT(error_of({"--chat-template-kwargs", "{"}), HasSubstr("expected a JSON object"));
}

TEST(Flags, VerboseTurnsOnVerboseAnswers) {
  EXPECT_TRUE(options_of({"-v"}).server.verbose);
  EXPECT_TRUE(options_of({"-lv", "10"}).server.verbose);
  EXPECT_FALSE(options_of({"-lv", "9"}).server.verbose);
}

TEST(Flags, RopeScaleIsTheInverseOfTheFrequencyScale) {
  EXPECT_EQ(options_of({"--rope-scale", "4"}).rope.freq_scale, 0.25f);
  EXPECT_EQ(options_of({"--rope-freq-scale", "0.5"}).rope.freq_scale, 0.5f);
  EXPECT_THAT(error_of({"--rope-scale", "0"}), HasSubstr("expected a number above 0"));
}

TEST(Flags, ToolsNarrowTheOriginsUnlessTheyAreChosen) {
  EXPECT_EQ(options_of({"--tools", "all"}).server.cors_origins, "localhost");
  EXPECT_EQ(options_of({"--cors-origins", "*", "--tools", "all"}).server.cors_origins, "*");
  EXPECT_EQ(options_of({"--tools", "all", "--cors-origins", "*"}).server.cors_origins, "*");
}

// --- the local hub cache ---

class HubCache : public ::testing::Test {
 protected:
  std::string find(const char* repository, const char* file = "") {
    return find_cached_model(repository, file, [&](const char* name) -> const char* {
      const auto found = variables_.find(name);
      return found == variables_.end() ? nullptr : found->second.c_str();
    });
  }
  std::string add(const std::string& file) {
    return folder_.write("hub/models--user--name/snapshots/c0ffee/" + file, "x");
  }
  void SetUp() override { folder_.write("hub/models--user--name/refs/main", "c0ffee\n"); }

  Folder folder_;
  Variables variables_ = {{"LLAMA_CACHE", folder_.path() + "/hub"}};
};

TEST_F(HubCache, PrefersQ4KMThenQ80ThenTheFirst) {
  const std::string first = add("a-Q2_K.gguf");
  EXPECT_EQ(find("user/name"), first);
  const std::string eight = add("m-q8_0.gguf");
  EXPECT_EQ(find("user/name"), eight);
  const std::string four = add("m-Q4_K_M.gguf");
  EXPECT_EQ(find("user/name"), four);
}

TEST_F(HubCache, TakesTheNamedQuantisationOrFile) {
  add("m-Q4_K_M.gguf");
  const std::string two = add("m-Q2_K.gguf");
  EXPECT_EQ(find("user/name:q2_k"), two);
  EXPECT_EQ(find("user/name", "m-Q2_K.gguf"), two);
  EXPECT_THROW(find("user/name:Q5_0"), Error);
  EXPECT_THROW(find("user/name", "other.gguf"), Error);
}

TEST_F(HubCache, SkipsProjectorsAndLaterParts) {
  add("mmproj-Q8_0.gguf");
  add("m-00002-of-00002.gguf");
  const std::string part = add("m-00001-of-00002.gguf");
  EXPECT_EQ(find("user/name"), part);
}

TEST_F(HubCache, LooksBelowHomeAsTheLastPlace) {
  folder_.write(".cache/huggingface/hub/models--user--name/refs/main", "ab");
  const std::string file = folder_.write(".cache/huggingface/hub/models--user--name/snapshots/ab/m.gguf", "x");
  variables_ = {{"LLAMA_CACHE", ""}, {"HOME", folder_.path()}};
  EXPECT_EQ(find("user/name"), file);
}

TEST_F(HubCache, SaysWhereItLooked) {
  try {
    find("nobody/nothing");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
    EXPECT_THAT(error.what(), HasSubstr("models--nobody--nothing"));
  }
}

TEST_F(HubCache, RefusesNamesThatAreNoRepository) {
  for (const char* name : {"name", "/name", "user/", "a/b/c", "../x"}) EXPECT_THROW(find(name), Error) << name;
}

TEST_F(HubCache, TheRepositoryIsTheIdOfTheModel) {
  add("m.gguf");
  const CommandLine line = parse_whole({"--hf-repo", "user/name", "--offline"}, variables_);
  EXPECT_EQ(line.options.model_id, "user/name");
  EXPECT_THAT(line.options.model_path, HasSubstr("snapshots/c0ffee/m.gguf"));
}

// --- flags of our own (docs/service.md) ---

TEST(ServiceFlags, SetKeysLimitsAndTimes) {
  const Options o = options_of({"--admin-key", "a,b", "--max-connections", "7", "--max-connections-per-address", "3",
                                "--max-queue", "0", "--max-body", "2", "--idle-timeout", "9", "--header-timeout", "8",
                                "--drain-timeout", "30", "--log-format", "json"});
  EXPECT_THAT(o.server.policy.admin_keys, ElementsAre("a", "b"));
  EXPECT_EQ(o.server.policy.limits.connections, 7);
  EXPECT_EQ(o.server.policy.limits.connections_per_address, 3);
  EXPECT_EQ(o.server.policy.limits.queue, 0);
  EXPECT_EQ(o.server.policy.limits.body_bytes, 2 << 20);
  EXPECT_EQ(o.server.policy.limits.idle_timeout_s, 9);
  EXPECT_EQ(o.server.policy.limits.header_timeout_s, 8);
  EXPECT_EQ(o.drain_timeout_s, 30);
  EXPECT_TRUE(o.log.json_lines);
  EXPECT_THAT(error_of({"--max-body", "0"}), HasSubstr("--max-body: "));
  EXPECT_THAT(error_of({"--log-format", "xml"}), HasSubstr("--log-format: "));
}

TEST(EnvironmentFile, IsStrongerThanTheEnvironmentAndWeakerThanFlags) {
  const Folder folder;
  const std::string file = folder.write(
      "settings", "# comment\n\n; another\nLLAMA_ARG_PORT = 1\nLLAMA_ARG_CTX_SIZE=\"512\"\nBANKML_CACHE_RAM=5\n");
  const Options o = options_of({"--env-file", file.c_str(), "--port", "2"}, {{"LLAMA_ARG_CTX_SIZE", "1024"}});
  EXPECT_EQ(o.server.port, 2);
  EXPECT_EQ(o.engine.context, 512);
  EXPECT_EQ(o.engine.cache_ram_mib, 5);
}

TEST(EnvironmentFile, NamesTheLineThatIsNone) {
  const Folder folder;
  const std::string file = folder.write("settings", "LLAMA_ARG_PORT=1\nport 2\n");
  EXPECT_THAT(error_of({"--env-file", file.c_str()}), HasSubstr("line 2"));
  EXPECT_THAT(error_of({"--env-file", "/no/such/file"}), HasSubstr("/no/such/file"));
}

TEST(Options, ADeviceIsCpuOrCudaWithANumber) {
  using Kind = DeviceChoice::Kind;
  EXPECT_EQ(options_of({}).device.kind, Kind::automatic);
  EXPECT_EQ(options_of({"--device", "cpu"}).device.kind, Kind::cpu);
  EXPECT_EQ(options_of({"-dev", "none"}).device.kind, Kind::cpu);
  EXPECT_EQ(options_of({"--device", "cuda"}).device.kind, Kind::cuda);
  EXPECT_EQ(options_of({"--device", "cuda:3"}).device.index, 3);
  EXPECT_EQ(options_of({}, {{"LLAMA_ARG_DEVICE", "CUDA1"}}).device.index, 1);
  EXPECT_THAT(error_of({"--device", "cuda:"}), HasSubstr("--device: expected cpu, cuda or cuda:N, got 'cuda:'"));
  EXPECT_THAT(error_of({"--device", "cuda:x"}), HasSubstr("got 'cuda:x'"));
  EXPECT_THAT(error_of({"--device", "rocm"}), HasSubstr("got 'rocm'"));
  EXPECT_THAT(error_of({"--device", "cuda:0,cuda:1"}), HasSubstr("got 'cuda:0,cuda:1'"));
}

TEST(Options, NoGpuLayersMeansTheCpu) {
  EXPECT_FALSE(options_of({}).gpu_layers_zero);
  EXPECT_TRUE(options_of({"-ngl", "0"}).gpu_layers_zero);
  EXPECT_FALSE(options_of({"-ngl", "99"}).gpu_layers_zero);
  EXPECT_FALSE(options_of({"-ngl", "auto"}).gpu_layers_zero);
  EXPECT_THAT(parse({"-ngl", "99"}).warnings, IsEmpty());
}

TEST(Options, ACheckLooksAtAllThatAStartWouldLookAt) {
  EXPECT_EQ(parse_whole({"--check"}).action, CommandLine::Action::check);
  EXPECT_THAT(error_of({"--check", "--port", "x"}), HasSubstr("--port: "));
  EXPECT_THAT(error_of({"--check", "--chat-template", "{% if %}"}), HasSubstr("--chat-template: "));
  EXPECT_EQ(parse_whole({"--check", "--help"}).action, CommandLine::Action::help);
}

TEST(Options, ListingDevicesNeedsNoModel) {
  EXPECT_EQ(parse_whole({"--list-devices"}).action, CommandLine::Action::list_devices);
}

}  // namespace
}  // namespace bankml
