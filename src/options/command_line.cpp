#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <cstdlib>
#include <map>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/options/options.hpp"
#include "bankml/text/chat_template.hpp"
#include "options/environment_file.hpp"
#include "options/flag.hpp"
#include "options/values.hpp"

namespace bankml {
namespace {

constexpr std::string_view kEnvPrefix = "LLAMA_ARG_";
constexpr std::string_view kNegatedEnvPrefix = "LLAMA_ARG_NO_";

constexpr const char* kCacheRamVariable = "BANKML_CACHE_RAM";
constexpr const char* kCacheTypeVariable = "BANKML_CACHE_TYPE";

constexpr int kAutomaticSlots = 4;
constexpr int kLastLogLevel = 9;  // more verbosity than that also shows in answers

struct Match {
  const Flag* flag = nullptr;
  bool off = false;  // by one of its off_names
};

// All spellings of all flags.
const std::map<std::string_view, Match>& flags_by_name() {
  static const auto map = [] {
    std::map<std::string_view, Match> built;
    for (const FlagSection& section : flag_sections()) {
      for (const Flag& flag : section.flags) {
        for (const std::string_view name : flag.names) built.emplace(name, Match{&flag, false});
        for (const std::string_view name : flag.off_names) built.emplace(name, Match{&flag, true});
      }
    }
    return built;
  }();
  return map;
}

// Runs `action`; an error is retold with the name of the flag or variable in front.
template <class Action>
void naming(std::string_view name, Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", name, error.what()));
  }
}

class Parser {
 public:
  explicit Parser(const Environment& environment) : process_environment_(environment) { options().engine.slots = -1; }

  CommandLine run(std::span<const char* const> arguments) {
    read_environment_file(arguments);
    read_own_environment();
    read_environment();
    read_arguments(arguments);
    if (result_.action == CommandLine::Action::serve || result_.action == CommandLine::Action::check) finish();
    return std::move(result_);
  }

 private:
  Options& options() { return result_.options; }

  template <class... Args>
  void warn(fmt::format_string<Args...> format, Args&&... args) {
    result_.warnings.push_back(fmt::format(format, std::forward<Args>(args)...));
  }

  // `spelling`: what the user wrote, for messages.
  void apply(const Flag& flag, std::string_view spelling, const std::string& value) {
    naming(spelling, [&] {
      if (!flag.refused.empty()) throw Error(ErrorKind::unsupported, fmt::format("not supported: {}", flag.refused));
      if (flag.set) flag.set(options(), value);
    });
    if (!flag.no_effect.empty()) warn("{} has no effect: {}", spelling, flag.no_effect);
    options().given.emplace(flag.name());
  }

  void read_environment_file(std::span<const char* const> arguments) {
    constexpr std::string_view kFlag = "--env-file";
    for (std::size_t i = 0; i + 1 < arguments.size(); ++i) {
      std::string spelling = arguments[i];
      std::replace(spelling.begin(), spelling.end(), '_', '-');
      if (spelling != kFlag) continue;
      const std::string path = arguments[i + 1];
      naming(kFlag, [&] { naming(path, [&] { file_variables_ = parse_environment_file(read_text_file(path)); }); });
    }
    for (const auto& [name, value] : file_variables_) {
      if (!is_variable(name)) warn("{}: {} has no effect: there is no such variable", kFlag, name);
    }
  }

  static bool is_variable(std::string_view name) {
    if (name == kCacheRamVariable || name == kCacheTypeVariable) return true;
    for (const FlagSection& section : flag_sections()) {
      for (const Flag& flag : section.flags) {
        if (flag.env.empty()) continue;
        const bool negates = flag.on_off() && flag.env.starts_with(kEnvPrefix) && name.starts_with(kNegatedEnvPrefix) &&
                             name.substr(kNegatedEnvPrefix.size()) == flag.env.substr(kEnvPrefix.size());
        if (flag.env == name || negates) return true;
      }
    }
    return false;
  }

  // bankmld's own variables, weaker than llama-server's.
  void read_own_environment() {
    if (const char* text = environment_(kCacheRamVariable)) {
      naming(kCacheRamVariable, [&] { options().engine.cache_ram_mib = to_int(text); });
    }
    if (const char* text = environment_(kCacheTypeVariable)) {
      for (const char* name : {"--cache-type-k", "--cache-type-v"}) {
        naming(kCacheTypeVariable, [&] { flags_by_name().at(name).flag->set(options(), text); });
      }
    }
  }

  void read_environment() {
    for (const FlagSection& section : flag_sections()) {
      for (const Flag& flag : section.flags) {
        if (!flag.env.empty()) read_variable(flag);
      }
    }
    from_environment_ = options().given;
  }

  void read_variable(const Flag& flag) {
    const std::string name(flag.env);
    const char* text = environment_(name.c_str());
    if (flag.on_off()) {
      if (name.starts_with(kEnvPrefix)) {
        const std::string negated = std::string(kNegatedEnvPrefix) + name.substr(kEnvPrefix.size());
        if (environment_(negated.c_str())) return apply(flag, negated, "0");
      }
      if (!text) return;
      bool on = false;
      naming(name, [&] { on = to_bool(text); });
      apply(flag, name, on ? "1" : "0");
    } else if (!flag.value.empty()) {
      if (text) apply(flag, name, text);
    } else if (text && is_true(text)) {
      apply(flag, name, "1");
    }
  }

  static bool is_true(std::string_view text) {
    try {
      return to_bool(text);
    } catch (const Error&) {
      return false;
    }
  }

  void read_arguments(std::span<const char* const> arguments) {
    std::set<std::string_view> seen;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      std::string spelling = arguments[i];
      if (spelling.starts_with("--")) std::replace(spelling.begin(), spelling.end(), '_', '-');
      const auto found = flags_by_name().find(spelling);
      if (found == flags_by_name().end()) {
        throw Error(ErrorKind::invalid_request,
                    fmt::format("unknown flag '{}' (--help lists the flags)", arguments[i]));
      }
      const Flag& flag = *found->second.flag;
      if (flag.name() == "--help") result_.action = CommandLine::Action::help;
      if (flag.name() == "--check") result_.action = CommandLine::Action::check;
      if (flag.name() == "--version") result_.action = CommandLine::Action::version;
      if (flag.name() == "--list-devices") result_.action = CommandLine::Action::list_devices;

      std::string value = found->second.off ? "0" : "1";
      if (!flag.value.empty()) {
        if (++i == arguments.size()) {
          throw Error(ErrorKind::invalid_request, fmt::format("{}: expected a value ({})", spelling, flag.value));
        }
        value = arguments[i];
      }
      if (!seen.insert(flag.name()).second) {
        if (!flag.repeatable) warn("{} is given more than once: the last one counts", flag.name());
      } else if (from_environment_.contains(flag.name())) {
        warn("{} replaces the value of {}", spelling, flag.env);
      }
      apply(flag, spelling, value);
    }
  }

  // What depends on several flags.
  void finish() {
    Options& o = options();
    if (o.escape) {
      for (std::string& word : o.server.defaults.stop) word = unescape(word);
      for (std::string& breaker : o.server.defaults.sampling.dry_sequence_breakers) breaker = unescape(breaker);
    }
    const auto is_tcp = [](const std::string& host) { return !host.ends_with(".sock"); };
    if (o.server.port == 0 && std::count_if(o.server.hosts.begin(), o.server.hosts.end(), is_tcp) > 1) {
      throw Error(ErrorKind::invalid_request,
                  "--port: 0 works with one --host only, since each address would get another port");
    }
    if (o.engine.slots < 0) {
      o.engine.slots = kAutomaticSlots;
      o.engine.unified_kv = true;
    }
    if (o.engine.cache_ram_mib == 0 && o.engine.slots > 1 && o.engine.cache_idle_slots) {
      o.engine.cache_idle_slots = false;
      warn("idle slots are not saved: there is no prompt cache to save them to");
    }
    // An open server answers whoever can reach it, so pages of other sites must not get a browser to do that for them.
    // Where keys are needed, or there is no model to ask, llama-server's default does no harm.
    const bool has_model = !o.model_path.empty() || !o.hf_repo.empty();
    if (!o.given.contains("--cors-origins") && o.server.policy.api_keys.empty() && has_model) {
      o.server.cors_origins = "localhost";
    }
    o.server.verbose = o.log.verbosity > kLastLogLevel;
    const char* const debug = environment_("LLAMA_SERVER_SLOTS_DEBUG");
    o.engine.slot_texts = o.server.slot_texts = debug != nullptr && std::atoi(debug) != 0;
    o.server.batch = o.engine.batch;
    o.server.defaults.n_predict = o.engine.n_predict;
    check_template();
    o.model_id = o.model_path;
    if (!o.hf_repo.empty()) {
      if (o.model_path.empty()) o.model_path = find_cached_model(o.hf_repo, o.hf_file, environment_);
      o.model_id = o.hf_repo;
    }
  }

  void check_template() {
    const ChatOptions& chat = options().chat;
    if (chat.chat_template.empty()) return;
    try {
      TemplateOptions template_options;
      template_options.jinja = chat.jinja;
      const boost::json::object message{{"role", "user"}, {"content", "test"}};
      ChatTemplate(chat.chat_template, std::move(template_options)).render({{"messages", boost::json::array{message}}});
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("--chat-template: the template is not supported: {}", error.what()));
    }
  }

  const Environment& process_environment_;
  std::map<std::string, std::string, std::less<>> file_variables_;  // of --env-file
  // The file's variables, then the process's.
  const Environment environment_ = [this](const char* name) {
    const auto found = file_variables_.find(std::string_view(name));
    return found == file_variables_.end() ? process_environment_(name) : found->second.c_str();
  };
  CommandLine result_;
  std::set<std::string, std::less<>> from_environment_;
};

// One flag of --help: names in the left column, the text beside it, wrapped.
void describe(std::string& out, const Flag& flag) {
  constexpr std::size_t kColumn = 34, kWidth = 110;
  std::string names = fmt::format("  {}", fmt::join(flag.names, ", "));
  if (!flag.value.empty()) names += fmt::format(" {}", flag.value);
  if (flag.on_off()) names += fmt::format(", {}", fmt::join(flag.off_names, ", "));
  std::string text(flag.help);
  if (!flag.env.empty()) text += fmt::format(" [{}]", flag.env);

  out += names;
  std::size_t column = names.size();
  if (column + 1 > kColumn) {
    out += '\n';
    column = 0;
  }
  out.append(kColumn - column, ' ');
  std::size_t used = kColumn;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find(' ', start), text.size());
    if (used > kColumn && used + 1 + (end - start) > kWidth) {
      out += '\n';
      out.append(kColumn, ' ');
      used = kColumn;
    } else if (used > kColumn) {
      out += ' ';
      ++used;
    }
    out.append(text, start, end - start);
    used += end - start;
    start = end + 1;
  }
  out += '\n';
}

}  // namespace

const std::vector<FlagSection>& flag_sections() {
  static const std::vector<FlagSection> sections = {
      general_flags(), device_flags(),   model_flags(), cache_flags(),     http_flags(),        service_flags(),
      chat_flags(),    sampling_flags(), log_flags(),   placement_flags(), unsupported_flags(),
  };
  return sections;
}

CommandLine parse_command_line(std::span<const char* const> arguments, const Environment& environment) {
  return Parser(environment).run(arguments);
}

std::string usage() {
  std::string out = "usage: bankmld -m FILE [flags]\n";
  for (const FlagSection& section : flag_sections()) {
    if (section.flags.front().refused.empty()) {
      out += fmt::format("\n{}\n", section.title);
      for (const Flag& flag : section.flags) describe(out, flag);
    }
  }
  out +=
      "\nThe command line is stronger than the environment; of an on/off flag LLAMA_ARG_NO_X means off.\n"
      "BANKML_CACHE_RAM (MiB) and BANKML_CACHE_TYPE (K and V) are weaker than the variables above.\n";
  return out;
}

std::string version() {
  return "bankmld " BANKML_VERSION;
}

}  // namespace bankml
