#include <fmt/format.h>

#include "bankml/base/error.hpp"
#include "options/flag.hpp"
#include "options/values.hpp"

namespace bankml {
namespace {

using Text = const std::string&;

std::vector<std::string> to_hosts(Text text) {
  std::vector<std::string> hosts = split_list(text);
  if (hosts.empty()) bad_value("an address or a path ending in .sock", text);
  return hosts;
}

int to_port(Text text) {
  const int port = to_int(text);
  if (port < 0 || port > 65535) bad_value("a port from 0 to 65535", text);
  return port;
}

std::string to_prefix(Text text) {
  if (!text.empty() && (text.front() != '/' || text.back() == '/')) {
    bad_value("a path like /p without a slash at the end", text);
  }
  return text;
}

constexpr int kEverything = 100;  // a verbosity above all others

}  // namespace

FlagSection http_flags() {
  return {
      "HTTP",
      {
          {.names = {"--host"},
           .value = "H1,H2",
           .env = "LLAMA_ARG_HOST",
           .help = "addresses to listen on, or UNIX socket paths ending in .sock (default 127.0.0.1)",
           .set = [](Options& o, Text v) { o.server.hosts = to_hosts(v); }},
          {.names = {"--port"},
           .value = "N",
           .env = "LLAMA_ARG_PORT",
           .help = "port (default 8080; 0: any free one)",
           .set = [](Options& o, Text v) { o.server.port = to_port(v); }},
          {.names = {"--reuse-port"},
           .env = "LLAMA_ARG_REUSE_PORT",
           .help = "let several processes share the port",
           .set = [](Options& o, Text) { o.server.reuse_port = true; }},
          {.names = {"--api-prefix"},
           .value = "P",
           .env = "LLAMA_ARG_API_PREFIX",
           .help = "path in front of every route",
           .set = [](Options& o, Text v) { o.server.api_prefix = to_prefix(v); }},
          {.names = {"--api-key"},
           .value = "K1,K2",
           .env = "LLAMA_API_KEY",
           .help = "keys of which a request needs one",
           .set =
               [](Options& o, Text v) {
                 for (auto& key : split_csv(v)) o.server.policy.api_keys.push_back(std::move(key));
               },
           .repeatable = true},
          {.names = {"--api-key-file"},
           .value = "FILE",
           .env = "LLAMA_ARG_API_KEY_FILE",
           .help = "the same, one key a line",
           .set = [](Options& o, Text v) { add_keys_of_file(v, o.server.policy.api_keys); }},
          {.names = {"--cors-origins"},
           .value = "O",
           .env = "LLAMA_ARG_CORS_ORIGINS",
           .help = "*, localhost or one origin (default localhost; * where keys are needed)",
           .set = [](Options& o, Text v) { o.server.cors_origins = v; }},
          {.names = {"--cors-methods"},
           .value = "M",
           .env = "LLAMA_ARG_CORS_METHODS",
           .help = "default GET, POST, DELETE, OPTIONS",
           .set = [](Options& o, Text v) { o.server.cors_methods = v; }},
          {.names = {"--cors-headers"},
           .value = "H",
           .env = "LLAMA_ARG_CORS_HEADERS",
           .help = "default *",
           .set = [](Options& o, Text v) { o.server.cors_headers = v; }},
          {.names = {"--cors-credentials"},
           .off_names = {"--no-cors-credentials"},
           .env = "LLAMA_ARG_CORS_CREDENTIALS",
           .help = "default on",
           .set = [](Options& o, Text v) { o.server.cors_credentials = v == "1"; }},
          {.names = {"-to", "--timeout"},
           .value = "S",
           .env = "LLAMA_ARG_TIMEOUT",
           .help = "read and write timeout in seconds (default 3600)",
           .set = [](Options& o, Text v) { o.server.timeout_s = to_int(v, 1); }},
          {.names = {"--threads-http"},
           .value = "N",
           .env = "LLAMA_ARG_THREADS_HTTP",
           .help = "HTTP threads (default -1: automatic)",
           .set = [](Options& o, Text v) { o.server.threads = to_threads(v); }},
          {.names = {"--sse-ping-interval"},
           .value = "S",
           .env = "LLAMA_ARG_SSE_PING_INTERVAL",
           .help = "a comment line after S silent seconds of a stream (default 30; -1: never)",
           .set = [](Options& o, Text v) { o.server.sse_ping_interval_s = to_int(v); }},
          {.names = {"--webui", "--ui"},
           .off_names = {"--no-webui", "--no-ui"},
           .env = "LLAMA_ARG_UI",
           .help = "the page at / (default on)",
           .set = [](Options& o, Text v) { o.server.ui = v == "1"; }},
          {.names = {"--path"},
           .value = "DIR",
           .env = "LLAMA_ARG_STATIC_PATH",
           .help = "serve this directory instead of the page",
           .set = [](Options& o, Text v) { o.server.static_path = to_directory(v); }},
      },
  };
}

FlagSection chat_flags() {
  return {
      "Chat",
      {
          {.names = {"--jinja"},
           .off_names = {"--no-jinja"},
           .env = "LLAMA_ARG_JINJA",
           .help = "Jinja templates; off: no tools (default on)",
           .set = [](Options& o, Text v) { o.chat.jinja = v == "1"; }},
          {.names = {"--chat-template"},
           .value = "T",
           .env = "LLAMA_ARG_CHAT_TEMPLATE",
           .help = "Jinja text or chatml (default: the model's, else chatml)",
           .set = [](Options& o, Text v) { o.chat.chat_template = v; }},
          {.names = {"--chat-template-file"},
           .value = "FILE",
           .env = "LLAMA_ARG_CHAT_TEMPLATE_FILE",
           .help = "the same from a file",
           .set =
               [](Options& o, Text v) {
                 o.chat.chat_template = read_text_file(v);
                 // The newline with which editors end a file is not the template's.
                 if (o.chat.chat_template.ends_with('\n')) o.chat.chat_template.pop_back();
               }},
          {.names = {"--chat-template-kwargs"},
           .value = "JSON",
           .env = "LLAMA_ARG_CHAT_TEMPLATE_KWARGS",
           .help = "template variables of every request",
           .set =
               [](Options& o, Text v) {
                 for (const auto& member : to_json_object(v)) o.chat.template_kwargs[member.key()] = member.value();
               }},
          {.names = {"--prefill-assistant"},
           .off_names = {"--no-prefill-assistant"},
           .env = "LLAMA_ARG_PREFILL_ASSISTANT",
           .help = "continue a trailing assistant message (default on)",
           .set = [](Options& o, Text v) { o.chat.prefill_assistant = v == "1"; }},
          {.names = {"-r", "--reverse-prompt"},
           .value = "S",
           .help = "stop word of every request that has none of its own; repeatable",
           .set = [](Options& o, Text v) { o.server.defaults.stop.push_back(v); },
           .repeatable = true},
          {.names = {"-e", "--escape"},
           .off_names = {"--no-escape"},
           .help = "read \\n and the like in stop words and DRY breakers (default on)",
           .set = [](Options& o, Text v) { o.escape = v == "1"; }},
          {.names = {"--spm-infill"},
           .help = "put the suffix first in infill",
           .set = [](Options& o, Text) { o.server.suffix_first_infill = true; }},
          {.names = {"--reasoning-format"},
           .value = "F",
           .env = "LLAMA_ARG_THINK",
           .help = "none: thinking stays in the content of chat answers; else it becomes reasoning_content (default "
                   "deepseek)",
           .set =
               [](Options& o, Text v) {
                 one_of(v, {"none", "auto", "deepseek", "deepseek-legacy"});
                 o.server.reasoning_format = v;
               }},
          {.names = {"-rea", "--reasoning"},
           .value = "on|off|auto",
           .env = "LLAMA_ARG_REASONING",
           .help =
               "whether models think unless a request says otherwise (default auto: if the template can ask for it)",
           .set =
               [](Options& o, Text v) {
                 const Switch choice = to_switch(v);
                 o.chat.thinking = choice != Switch::off;
                 if (choice == Switch::on) o.chat.template_kwargs["enable_thinking"] = true;
               }},
          {.names = {"--reasoning-effort"},
           .value = "L",
           .env = "LLAMA_ARG_REASONING_EFFORT",
           .help = "template variable of that name in every request",
           .set = [](Options& o, Text v) { o.chat.reasoning_effort = v; }},
          {.names = {"--reasoning-budget"},
           .value = "N",
           .env = "LLAMA_ARG_THINK_BUDGET",
           .help = "thinking tokens; thinking is not cut off here, so only -1 (no limit) is taken",
           .set =
               [](Options&, Text v) {
                 if (to_int(v, -1) == -1) return;
                 throw Error(ErrorKind::unsupported, "thinking is not cut off; expected -1, got " + std::string(v));
               }},
          {.names = {"--reasoning-budget-message"},
           .value = "S",
           .env = "LLAMA_ARG_THINK_BUDGET_MESSAGE",
           .help = "text at the end of the budget",
           .no_effect = "thinking is not cut off"},
          {.names = {"--reasoning-preserve"},
           .off_names = {"--no-reasoning-preserve"},
           .env = "LLAMA_ARG_REASONING_PRESERVE",
           .help = "keep old thinking in the history where the template can (default on)",
           .set = [](Options& o, Text v) { o.chat.preserve_reasoning = v == "1"; }},
          {.names = {"--skip-chat-parsing"},
           .off_names = {"--no-skip-chat-parsing"},
           .env = "LLAMA_ARG_SKIP_CHAT_PARSING",
           .help = "everything stays in the content of chat answers",
           .set = [](Options& o, Text v) { o.server.skip_chat_parsing = v == "1"; }},
      },
  };
}

FlagSection log_flags() {
  return {
      "Log",
      {
          {.names = {"-v", "--log-verbose", "--verbose"},
           .help = "log everything; answers get the field __verbose",
           .set = [](Options& o, Text) { o.log.verbosity = kEverything; }},
          {.names = {"-lv", "--log-verbosity", "--verbosity"},
           .value = "N",
           .env = "LLAMA_ARG_LOG_VERBOSITY",
           .help = "0 nothing, 1 errors, 2 warnings, 3 info (default), 4 trace, 5 debug; above 9 as -v",
           .set = [](Options& o, Text v) { o.log.verbosity = to_int(v, 0); }},
          {.names = {"--log-disable"}, .help = "no log", .set = [](Options& o, Text) { o.log.disabled = true; }},
          {.names = {"--log-file"},
           .value = "FILE",
           .env = "LLAMA_ARG_LOG_FILE",
           .help = "log to this file as well",
           .set = [](Options& o, Text v) { o.log.file = v; }},
          {.names = {"--log-colors"},
           .value = "on|off|auto",
           .env = "LLAMA_ARG_LOG_COLORS",
           .help = "default auto: where stderr is a terminal",
           .set =
               [](Options& o, Text v) {
                 const Switch colors = to_switch(v);
                 o.log.colors = colors == Switch::automatic ? std::nullopt : std::optional(colors == Switch::on);
               }},
          {.names = {"--log-prefix"},
           .off_names = {"--no-log-prefix"},
           .env = "LLAMA_ARG_LOG_PREFIX",
           .help = "level in front of each line (default on)",
           .set = [](Options& o, Text v) { o.log.level = v == "1"; }},
          {.names = {"--log-timestamps"},
           .off_names = {"--no-log-timestamps"},
           .env = "LLAMA_ARG_LOG_TIMESTAMPS",
           .help = "time in front of each line (default on)",
           .set = [](Options& o, Text v) { o.log.time = v == "1"; }},
          {.names = {"--log-jsonl"},
           .off_names = {"--no-log-jsonl"},
           .env = "LLAMA_ARG_LOG_JSONL",
           .help = "one JSON object a line, on stdout",
           .set = [](Options& o, Text v) { o.log.json_lines = v == "1"; }},
          {.names = {"--log-prompts-dir"},
           .value = "DIR",
           .help = "one file per prompt",
           .no_effect = "prompts are not written to files"},
      },
  };
}

}  // namespace bankml
