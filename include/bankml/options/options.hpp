#pragma once
// The command line and environment in llama-server's spelling (docs/cli.md), turned into one options struct per layer.
#include <boost/json/object.hpp>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/base/log.hpp"
#include "bankml/engine/engine.hpp"
#include "bankml/model/config.hpp"
#include "bankml/model/gguf.hpp"
#include "bankml/server/server.hpp"

namespace bankml {

struct ChatOptions {
  bool jinja = true;
  std::string chat_template;  // Jinja text or "chatml"; "": the model's own
  boost::json::object template_kwargs;
  std::string reasoning_effort;    // template variable of that name, unless a kwarg says otherwise; "": none
  bool preserve_reasoning = true;  // likewise
  bool thinking = true;            // whether models think where a request leaves it open
  bool prefill_assistant = true;
};

// Where the model runs. Automatic: CUDA device 0 if it can be used, else the CPU.
struct DeviceChoice {
  enum class Kind { automatic, cpu, cuda } kind = Kind::automatic;
  int index = 0;  // of the CUDA device
};

struct Options {
  std::string model_path;        // as given, or as found in the local hub cache; "": none
  std::string hf_repo, hf_file;  // as given
  std::string model_id;          // what the API calls the model if there is no alias
  std::set<std::string> aliases, tags;
  EngineOptions engine;
  ServerOptions server;  // with the defaults of request fields, sampling included
  ChatOptions chat;
  LogOptions log;
  RopeOverrides rope;
  bool escape = true;       // whether backslash sequences in stop words and DRY breakers were read
  int drain_timeout_s = 2;  // how long a stop waits for running answers
  DeviceChoice device;
  bool gpu_layers_zero = false;              // no layer on a GPU: the CPU, whatever `device` says
  int threads = 0;                           // of the CPU backend; below 1: all usable cores
  std::set<std::string, std::less<>> given;  // long names of the flags that came from the command line or environment
};

struct CommandLine {
  enum class Action { serve, check, help, version, list_devices };
  Action action = Action::serve;
  Options options;
  std::vector<std::string> warnings;  // one line each, for the log
};

// Looks up an environment variable; nullptr if it is unset.
using Environment = std::function<const char*(const char* name)>;

// `arguments`: without the program's name. Weakest source first: built-in default, environment, --env-file, command
// line.
// Throws Error(invalid_request) with one line that names the flag, what was expected and what came. Reads the files
// that flags name (Error(io) if one can't be read).
CommandLine parse_command_line(std::span<const char* const> arguments, const Environment& environment);

// What --help prints.
std::string usage();
// What --version prints.
std::string version();

// Replaces sampling defaults that no flag has set by those of the model's metadata (keys general.sampling.*,
// docs/sampling.md 1). Values that can't be used are ignored.
void apply_model_sampling(const GgufFile& file, Options& options);

// The path of a model in the local hub cache, by the rules of docs/cli.md 2. `repository`: USER/NAME or
// USER/NAME:QUANT; `file`: a name inside it, or "". Throws Error(not_found) saying where it looked. Nothing is
// downloaded.
std::string find_cached_model(std::string_view repository, std::string_view file, const Environment& environment);

}  // namespace bankml
