#pragma once
// The HTTP server: llama-server's routes (docs/http-api.md) on a pool of I/O threads. It listens before the model is
// loaded and answers 503 until set_ready().
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bankml/engine/engine.hpp"
#include "bankml/server/completion_service.hpp"
#include "bankml/text/chat_template.hpp"
#include "bankml/text/tokenizer.hpp"

namespace bankml {

// What clients may use up. 0 means no limit where nothing else is said.
struct ServerLimits {
  int connections = 4096;                             // open at the same time; more are answered 503 and closed
  int connections_per_address = 2048;                 // of one TCP client address
  int queue = 1024;                                   // generations that wait for a slot; more are answered 503
  std::int64_t body_bytes = std::int64_t{100} << 20;  // of a request; more is answered 413. At least 1
  int idle_timeout_s = 5;     // silence between two requests of a connection, then it is closed. At least 1
  int header_timeout_s = 60;  // from the first byte of a request to the end of its header. At least 1
};

// What Server::reload() may change.
struct ServerPolicy {
  std::vector<std::string> api_keys;    // of which requests need one; none: no key is needed
  std::vector<std::string> admin_keys;  // good for everything; where there are any, only they allow slot actions,
                                        // GET /cache and POST /props
  ServerLimits limits;
};

struct ServerOptions {
  std::vector<std::string> hosts = {"127.0.0.1"};  // addresses or names, or paths of UNIX sockets ending in ".sock"
  int port = 8080;                                 // 0: any free port, with one TCP host only
  bool reuse_port = false;
  std::vector<int> listening_sockets;  // inherited ones, used instead of hosts and port; closed by the server
  std::string api_prefix;              // "" or "/p", without a slash at the end
  ServerPolicy policy;
  std::string cors_origins = "*", cors_methods = "GET, POST, DELETE, OPTIONS", cors_headers = "*";
  bool cors_credentials = true;
  int timeout_s = 3600;                               // of reading a request and of each write
  int threads = -1;                                   // below 1: chosen by the machine
  bool ui = true;                                     // the page at "/"
  std::string static_path;                            // a directory that is served in place of the page; "": none
  bool slots = true, metrics = false, props = false;  // whether GET /slots, GET /metrics and POST /props answer
  bool slot_texts = false;                            // whether GET /slots tells prompts and answers
  bool verbose = false;                               // whether OpenAI answers have the field "__verbose"
  int sse_ping_interval_s = 30;                       // silence before an SSE comment; below 1: never
  int batch = 2048;                                   // tokens of a step: limits how much of a file infill sees
  bool suffix_first_infill = false;                   // the order of infill's parts
  std::string reasoning_format = "deepseek";          // of chats: "none" leaves the thinking in the content
  bool skip_chat_parsing = false;                     // all that a model writes is content, its thinking too
  CompletionParams defaults;                          // of the request fields
};

// What GET /props and GET /v1/models say about the model.
struct ModelInfo {
  std::string id;                          // what the API calls it
  std::vector<std::string> aliases, tags;  // sorted
  std::string path, file_type;             // as loaded; "Q4_1"
  int context_train = 0, dim = 0;
  std::int64_t parameters = 0;
  std::uint64_t bytes = 0;  // of all tensors
};
// Fills everything but id, aliases and tags.
ModelInfo describe_model(const Model& model, std::string path);

// What the routes work with once the model is loaded. Everything pointed to outlives the server's stop().
struct App {
  ModelInfo model;
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;
  std::string tool_use_template;  // source of the model's tool_use variant, "" if it has none
  CompletionService* engine = nullptr;
  std::optional<CompletionParams> defaults;  // of request fields, in place of those of ServerOptions
};

class Server {
 public:
  explicit Server(ServerOptions options);
  ~Server();  // stop()
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Binds, listens and starts the threads. Throws Error(invalid_request) for addresses that can't be used together and
  // Error(io), naming the address, for one that can't be bound.
  void start();
  // "http://127.0.0.1:8080", one per listener, with the ports that were really bound. After start().
  std::vector<std::string> addresses() const;
  int port() const noexcept;  // of the first TCP listener; 0 if there is none

  // From here on requests are served. Once, from any thread.
  void set_ready(App app);

  // From here on nothing is loading any more, although there is no model: /health and the page answer, whatever needs a
  // model says that there is none. Instead of set_ready().
  void serve_without_model();

  // From here on these keys and limits hold; what is open stays open. Any thread.
  void reload(ServerPolicy policy);

  // Takes no more connections and no more requests, and waits until all answers that have been begun are complete, at
  // most for `patience`; false if it was over before. May be called again. Not from one of the server's own threads.
  bool drain(std::chrono::milliseconds patience);

  // Closes the listeners, cancels all work, ends streams and connections and joins the threads: takes seconds at most,
  // whatever the clients do, plus the rest of a large request that is being parsed and tokenised. Idempotent; not from
  // one of the server's own threads. The engine is needed until it returns.
  void stop();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bankml
