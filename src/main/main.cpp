// bankmld: command line to options, options to objects, then wait for the signal that stops it.
#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "bankml/device/cuda.hpp"
#include "bankml/device/device.hpp"
#include "bankml/engine/engine.hpp"
#include "bankml/model/config.hpp"
#include "bankml/model/gguf.hpp"
#include "bankml/model/model.hpp"
#include "bankml/options/options.hpp"
#include "bankml/server/completion_service.hpp"
#include "bankml/server/server.hpp"
#include "bankml/text/chat_template.hpp"
#include "bankml/text/tokenizer.hpp"
#include "main/progress.hpp"
#include "main/service_manager.hpp"
#include "main/signals.hpp"

namespace bankml {
namespace {

constexpr double kMiB = 1024.0 * 1024.0;
constexpr rlim_t kDescriptors = 65536;
// For the last events of answers that were still running at the end of the drain timeout.
constexpr auto kLastWords = std::chrono::milliseconds(500);

using Arguments = std::span<const char* const>;

CommandLine read_command_line(Arguments arguments) {
  return parse_command_line(arguments, [](const char* name) -> const char* { return std::getenv(name); });
}

// Every connection takes a descriptor, and the usual limit of 1024 is one for programs that use select().
void raise_descriptor_limit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = std::max(limit.rlim_cur, std::min(limit.rlim_max, kDescriptors));
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void list_devices() {
  fmt::print("Available devices:\n");
  const CudaDevices found = find_cuda_devices(true);
  for (const CudaDeviceInfo& device : found.devices) {
    fmt::print("  cuda:{}: {} ({:.0f} MiB, {:.0f} MiB free)\n", device.index, device.name,
               static_cast<double>(device.total_bytes) / kMiB, static_cast<double>(device.free_bytes) / kMiB);
  }
  if (found.devices.empty()) fmt::print("  (none: {})\n", found.reason);
}

// The CUDA device of the flags, unset: the CPU. One that is asked for by name is used or it is an error; one that
// isn't, is used if it can be.
std::optional<int> choose_cuda_device(const Options& options) {
  using Kind = DeviceChoice::Kind;
  if (options.device.kind == Kind::cpu || options.gpu_layers_zero) return std::nullopt;
  if (options.device.kind == Kind::cuda) return options.device.index;
  const CudaDevices found = find_cuda_devices();
  if (!found.devices.empty()) return found.devices.front().index;
  log_info("the model runs on the CPU: {}", found.reason);
  return std::nullopt;
}

void check_weights_fit(const GgufFile& file, int cuda_device) {
  std::size_t needed = 0;
  for (const GgufTensor& tensor : file.tensors()) needed += tensor.data.size();
  const std::size_t free = free_cuda_memory(cuda_device);
  log_info("device memory: {:.0f} MiB for weights, {:.0f} MiB are free", static_cast<double>(needed) / kMiB,
           static_cast<double>(free) / kMiB);
  if (needed <= free) return;
  throw Error(
      ErrorKind::out_of_memory,
      fmt::format(
          "the weights of {} take {:.0f} MiB, but {:.0f} MiB of cuda:{} are free (--device cpu runs it on the CPU)",
          file.name(), static_cast<double>(needed) / kMiB, static_cast<double>(free) / kMiB, cuda_device));
}

std::unique_ptr<Model> load_model(const Options& options, GgufFile file, Device& device, std::optional<int> cuda_device,
                                  const ServiceManager& manager) {
  if (cuda_device) check_weights_fit(file, *cuda_device);
  const auto start = std::chrono::steady_clock::now();
  ProgressLine progress;
  int told = -1;
  std::unique_ptr<Model> model = Model::load(std::move(file), device, options.rope, [&](double fraction) {
    progress.update(fraction);
    const int percent = static_cast<int>(fraction * 100.0);
    if (percent != std::exchange(told, percent)) manager.status(fmt::format("loading the model: {} %", percent));
  });
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  const ModelConfig& config = model->config();
  log_info("model loaded in {:.2f} s: {} ({} {}, {:.1f} M parameters), trained for {} tokens of context",
           seconds.count(), options.model_path, config.architecture, config.file_type,
           static_cast<double>(model->parameters()) / 1e6, config.context);
  return model;
}

// What doesn't fit together in the file's vocabulary is found here.
Tokenizer make_tokenizer(const GgufFile& file) {
  VocabularySource source = read_vocabulary(file);
  try {
    return Tokenizer(std::move(source));
  } catch (const Error& error) {
    throw Error(error.kind(), fmt::format("{}: {}", file.name(), error.what()));
  }
}

std::string token_text(const Tokenizer& tokenizer, std::optional<TokenId> token) {
  return token ? std::string(tokenizer.piece(*token, true)) : std::string();
}

// The template of the flags, else the model's, else ChatML. A template that can't render one user message is of no use
// to any chat: the daemon doesn't start with it.
ChatTemplate make_template(const ChatOptions& chat, const GgufFile& file, const Tokenizer& tokenizer) {
  TemplateOptions options;
  options.jinja = chat.jinja;
  options.bos_token = token_text(tokenizer, tokenizer.bos());
  options.eos_token = token_text(tokenizer, tokenizer.eos());
  options.adds_bos = tokenizer.adds_bos();
  options.adds_eos = tokenizer.adds_eos();
  options.prefill_assistant = chat.prefill_assistant;
  options.kwargs = chat.template_kwargs;
  options.kwargs.emplace("preserve_reasoning", chat.preserve_reasoning);  // keeps what is there
  if (!chat.reasoning_effort.empty()) options.kwargs.emplace("reasoning_effort", chat.reasoning_effort);
  options.thinking = chat.thinking;
  const std::string source = chat.chat_template.empty() ? read_chat_template(file) : chat.chat_template;
  try {
    ChatTemplate chat_template(source, std::move(options));
    const boost::json::object message{{"role", "user"}, {"content", "test"}};
    chat_template.render({{"messages", boost::json::array{message}}});
    return chat_template;
  } catch (const Error& error) {
    throw Error(error.kind(),
                fmt::format("the chat template of {} can't be used (--chat-template sets another one): {}",
                            chat.chat_template.empty() ? "the model" : "the command line", error.what()));
  }
}

ModelInfo model_info(const Options& options, const Model& model) {
  ModelInfo info = describe_model(model, options.model_path);
  info.aliases.assign(options.aliases.begin(), options.aliases.end());
  if (info.aliases.empty()) info.aliases.push_back(options.model_id);
  info.id = info.aliases.front();
  info.tags.assign(options.tags.begin(), options.tags.end());
  return info;
}

void log_limits(const Engine& engine) {
  const std::uint64_t limit = engine.metrics().cache_limit_bytes;
  const bool cache_off = engine.options().cache_ram_mib == 0;
  log_info("n_ctx {} for each of the slots ({}), prompt cache {}", engine.slot_context(), engine.slot_count(),
           cache_off    ? std::string("off")
           : limit == 0 ? std::string("without a byte limit")
                        : fmt::format("of {:.0f} MiB", static_cast<double>(limit) / kMiB));
}

// The command line and the files that it names, read again. What can't be changed while the daemon runs stays.
void reload(Arguments arguments, Server& server, const ServiceManager& manager) {
  manager.reloading();
  try {
    const CommandLine line = read_command_line(arguments);
    const int level = std::clamp(line.options.log.verbosity, 0, static_cast<int>(LogLevel::debug));
    set_log_level(static_cast<LogLevel>(level));
    server.reload(line.options.server.policy);
    log_info("reloaded: keys, limits and log level");
  } catch (const std::exception& error) {
    log_error("reload: everything stays as it was: {}", error.what());
  }
  manager.ready("serving");
}

// Lets running answers end, at most for the drain timeout; those that are left get a last event that says why.
void stop(const Options& options, Server& server, Engine& engine) {
  log_info("stopping");
  if (!server.drain(std::chrono::seconds(options.drain_timeout_s))) {
    log_warning("some answers were still running: they are cut short");
    engine.stop();
    server.drain(kLastWords);
  }
  server.stop();
  engine.stop();
}

// Pages and programs that only ask for /health, or how other origins are treated, need no model.
void serve_without_model(Server& server) {
  const Signals signals;
  server.serve_without_model();
  log_warning(
      "no model: give a GGUF file with -m (--help lists the flags); only /health, /v1/models and the page answer");
  while (signals.wait() == Signals::Event::reload) log_warning("reload: nothing is reloaded without a model");
  server.stop();
}

// Members in the order in which they are needed, so that the last one goes first.
void serve(Options options, Arguments arguments) {
  const ServiceManager manager;
  raise_descriptor_limit();
  // A service whose settings name no model should be seen to fail.
  if (options.model_path.empty() && manager.present()) {
    throw Error(ErrorKind::invalid_request, "no model: give a GGUF file with -m (--help lists the flags)");
  }
  options.server.listening_sockets = manager.sockets();
  Server server(options.server);
  server.start();
  for (const std::string& address : server.addresses()) log_info("listening on {}", address);
  if (options.model_path.empty()) return serve_without_model(server);

  const std::optional<int> cuda_device = choose_cuda_device(options);
  const std::unique_ptr<Device> device =
      cuda_device ? make_cuda_device(*cuda_device) : make_cpu_device(options.threads);
  log_info("device: {}", device->description());
  GgufFile file = GgufFile::open(options.model_path);
  read_config(file, options.rope);  // what isn't built in is named first, and before memory is taken for weights
  const Tokenizer tokenizer = make_tokenizer(file);
  const ChatTemplate chat_template = make_template(options.chat, file, tokenizer);
  const std::unique_ptr<Model> model = load_model(options, std::move(file), *device, cuda_device, manager);
  apply_model_sampling(model->file(), options);
  options.engine.heartbeat = manager.watchdog();
  if (cuda_device) options.engine.device_free_bytes = [index = *cuda_device] { return free_cuda_memory(index); };
  Engine engine(*model, tokenizer, options.engine);
  const std::unique_ptr<CompletionService> service = make_completion_service(engine);
  log_limits(engine);

  // The server's threads use all of the above: they end first, also when something below throws.
  const auto stop_server = [](Server* running) { running->stop(); };
  const std::unique_ptr<Server, decltype(stop_server)> guard(&server, stop_server);
  const Signals signals;
  server.set_ready({.model = model_info(options, *model),
                    .tokenizer = &tokenizer,
                    .chat_template = &chat_template,
                    .tool_use_template = read_chat_template(model->file(), "tool_use"),
                    .engine = service.get(),
                    .defaults = options.server.defaults});
  log_info("ready");
  manager.ready("serving");
  while (signals.wait() == Signals::Event::reload) reload(arguments, server, manager);
  manager.stopping(fmt::format("stopping: running answers have {} s", options.drain_timeout_s));
  stop(options, server, engine);
}

int run(Arguments arguments) {
  try {
    CommandLine line = read_command_line(arguments);
    if (line.action == CommandLine::Action::help) {
      fmt::print("{}", usage());
      return EXIT_SUCCESS;
    }
    if (line.action == CommandLine::Action::version) {
      fmt::print(stderr, "{}\n", version());
      return EXIT_SUCCESS;
    }
    if (line.action == CommandLine::Action::list_devices) {
      list_devices();
      return EXIT_SUCCESS;
    }
    if (line.action == CommandLine::Action::check) {
      for (const std::string& warning : line.warnings) fmt::print(stderr, "bankmld: {}\n", warning);
      fmt::print("flags, variables and files can be used\n");
      return EXIT_SUCCESS;
    }
    configure_log(line.options.log);
    for (const std::string& warning : line.warnings) log_warning("{}", warning);
    serve(std::move(line.options), arguments);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    fmt::print(stderr, "bankmld: {}\n", error.what());
    return EXIT_FAILURE;
  }
}

}  // namespace
}  // namespace bankml

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a client that left is an error of its own write
  std::signal(SIGXFSZ, SIG_IGN);  // and so is a file that may not grow
  return bankml::run(std::span<const char* const>(argv, static_cast<std::size_t>(argc)).subspan(argc > 0 ? 1 : 0));
}
