#pragma once
// The command line and environment in llama-server's spelling (docs/cli.md), turned into one options struct per layer.
#include <boost/json/object.hpp>
#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/engine/engine.hpp"
#include "bankml/model/config.hpp"
#include "bankml/model/gguf.hpp"

namespace bankml {

// Transport and routes.
struct HttpOptions {
  std::vector<std::string> hosts = {
      "127.0.0.1"};  // addresses, or UNIX socket paths ending in ".sock"; one listener each
  int port = 8080;   // 0: any free port
  bool reuse_port = false;
  std::string api_prefix;             // "" or "/p", without a slash at the end
  std::vector<std::string> api_keys;  // none: everything is open
  std::string cors_origins = "*", cors_methods = "GET, POST, DELETE, OPTIONS", cors_headers = "*";
  bool cors_credentials = true;
  int timeout_s = 3600;          // of a read and of a write
  int threads = -1;              // below 1: chosen by the server
  int sse_ping_interval_s = 30;  // negative: never
  bool ui = true;
  std::string static_path;                            // directory served instead of the UI
  bool slots = true, metrics = false, props = false;  // whether GET /slots, GET /metrics and POST /props answer
};

struct ChatOptions {
  bool jinja = true;
  std::string chat_template;  // Jinja text or "chatml"; "": the model's own
  boost::json::object template_kwargs;
  bool prefill_assistant = true;
};

struct LogOptions {
  static constexpr int kEverything = 100;
  int verbosity = 3;  // 0 nothing, 1 error, 2 warning, 3 info, 4 trace, 5 debug
  bool verbose_answers() const noexcept { return verbosity > 9; }  // whether answers have the field "__verbose"
  bool disabled = false;
  std::string file;            // "": stderr
  std::optional<bool> colors;  // unset: where stderr is a terminal
  bool prefix = false, timestamps = false, jsonl = false;
};

struct Options {
  std::string model_path;        // as given, or as found in the local hub cache
  std::string hf_repo, hf_file;  // as given
  std::string model_id;          // what the API calls the model if there is no alias
  std::set<std::string> aliases, tags;
  EngineOptions engine;
  CompletionParams request;  // defaults of request fields
  HttpOptions http;
  ChatOptions chat;
  LogOptions log;
  RopeOverrides rope;
  bool escape = true;                        // whether backslash sequences in stop words and DRY breakers were read
  int threads = 0;                           // of the CPU backend; below 1: all usable cores
  std::set<std::string, std::less<>> given;  // long names of the flags that came from the command line or environment
};

struct CommandLine {
  enum class Action { serve, help, version };
  Action action = Action::serve;
  Options options;
  std::vector<std::string> warnings;  // one line each, for the log
};

// Looks up an environment variable; nullptr if it is unset.
using Environment = std::function<const char*(const char* name)>;

// `arguments`: without the program's name. Weakest source first: built-in default, environment, command line.
// Throws Error(invalid_request) with one line that names the flag, what was expected and what came. Reads the files
// that flags name (Error(io) if one can't be read).
CommandLine parse_command_line(std::span<const char* const> arguments, const Environment& environment);

// What --help prints.
std::string usage();
// What --version prints.
std::string version();

// Replaces sampling defaults that no flag has set by those of the model's metadata (keys general.sampling.*,
// docs/sampling.md 1). Values that can't be read are ignored.
void apply_model_sampling(const GgufFile& file, Options& options);

// The path of a model in the local hub cache, by the rules of docs/cli.md 2. `repository`: USER/NAME or
// USER/NAME:QUANT; `file`: a name inside it, or "". Throws Error(not_found) saying where it looked. Nothing is
// downloaded.
std::string find_cached_model(std::string_view repository, std::string_view file, const Environment& environment);

}  // namespace bankml
