// Flags that llama-server does not have: what a daemon needs that others rely on (docs/service.md).
#include <fmt/format.h>

#include "options/flag.hpp"
#include "options/values.hpp"

namespace bankml {
namespace {

using Text = const std::string&;

constexpr std::int64_t kMiB = 1 << 20;
constexpr int kMaxBodyMiB = 1 << 20;

void set_log_format(Options& options, Text value) {
  options.log.json_lines = one_of(value, {"text", "json"}) == "json";
}

}  // namespace

FlagSection service_flags() {
  return {
      "Service (not in llama-server; those marked * can be changed by a reload)",
      {
          {.names = {"--env-file"},
           .value = "FILE",
           .help = "take variables from these lines NAME=VALUE; stronger than the environment, read again on SIGHUP",
           .set = [](Options&, Text) {}},  // read before all others
          {.names = {"--check"},
           .help = "say whether flags, variables and the files that they name can be used, and exit: status 0 or 1"},
          {.names = {"--admin-key"},
           .value = "K1,K2",
           .env = "BANKML_ADMIN_KEY",
           .help = "* keys without which slot actions, GET /cache and POST /props are refused",
           .set =
               [](Options& o, Text v) {
                 for (auto& key : split_csv(v)) o.server.policy.admin_keys.push_back(std::move(key));
               },
           .repeatable = true},
          {.names = {"--admin-key-file"},
           .value = "FILE",
           .env = "BANKML_ADMIN_KEY_FILE",
           .help = "* the same, one key a line",
           .set = [](Options& o, Text v) { add_keys_of_file(v, o.server.policy.admin_keys); }},
          {.names = {"--max-connections"},
           .value = "N",
           .env = "BANKML_MAX_CONNECTIONS",
           .help = "* connections open at the same time (default 4096; 0: no limit)",
           .set = [](Options& o, Text v) { o.server.policy.limits.connections = to_int(v, 0); }},
          {.names = {"--max-connections-per-address"},
           .value = "N",
           .env = "BANKML_MAX_CONNECTIONS_PER_ADDRESS",
           .help = "* of one client address (default 2048; 0: no limit)",
           .set = [](Options& o, Text v) { o.server.policy.limits.connections_per_address = to_int(v, 0); }},
          {.names = {"--max-queue"},
           .value = "N",
           .env = "BANKML_MAX_QUEUE",
           .help = "* generations that may wait for a slot (default 1024; 0: no limit)",
           .set = [](Options& o, Text v) { o.server.policy.limits.queue = to_int(v, 0); }},
          {.names = {"--max-body"},
           .value = "MIB",
           .env = "BANKML_MAX_BODY",
           .help = "* size of a request (default 100)",
           .set =
               [](Options& o, Text v) {
                 const int mib = to_int(v, 1);
                 if (mib > kMaxBodyMiB) bad_value(fmt::format("at most {} MiB", kMaxBodyMiB), v);
                 o.server.policy.limits.body_bytes = mib * kMiB;
               }},
          {.names = {"--idle-timeout"},
           .value = "S",
           .env = "BANKML_IDLE_TIMEOUT",
           .help = "* silence after which a connection without a request is closed (default 5)",
           .set = [](Options& o, Text v) { o.server.policy.limits.idle_timeout_s = to_int(v, 1); }},
          {.names = {"--header-timeout"},
           .value = "S",
           .env = "BANKML_HEADER_TIMEOUT",
           .help = "* time for the header of a request (default 60)",
           .set = [](Options& o, Text v) { o.server.policy.limits.header_timeout_s = to_int(v, 1); }},
          {.names = {"--drain-timeout"},
           .value = "S",
           .env = "BANKML_DRAIN_TIMEOUT",
           .help = "how long a stop waits for running answers (default 2)",
           .set = [](Options& o, Text v) { o.drain_timeout_s = to_int(v, 0); }},
          {.names = {"--log-format"},
           .value = "text|json",
           .env = "BANKML_LOG_FORMAT",
           .help = "json: one JSON object a line, on stdout, as --log-jsonl (default text)",
           .set = set_log_format},
      },
  };
}

}  // namespace bankml
