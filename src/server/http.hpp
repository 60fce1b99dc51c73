#pragma once
// Requests and answers as plain values, so that everything above the sockets is tested without them.
#include <boost/json/value.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace bankml {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;  // "GET"
  std::string path;    // decoded, without the query
  std::string query;   // what follows '?', undecoded
  Headers headers;
  std::string body;
  std::string id;  // of the client or made up: in the answer and in the log

  // Value of the first header of that name, any letter case; "" if there is none.
  std::string_view header(std::string_view name) const noexcept;
  // Decoded value of a query parameter; "" if it is absent.
  std::string query_value(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type;
  std::string body;
  Headers headers;
};

Response json_response(const boost::json::value& body, int status = 200);

// What a reply has to give at the moment.
struct ReplyPart {
  std::optional<Response> response;  // the whole answer, in place of a stream
  bool streaming = false;            // the status is 200 and a stream follows: its header may be sent
  std::string text;                  // of the stream
  bool finished = false;             // nothing will come after this
};

// An answer that is made over time. Used by one thread at a time; destroying it gives up what is still running.
class PendingReply {
 public:
  virtual ~PendingReply() = default;

  // Starts the work. `wake` is called, from any thread and never after the destructor, when poll() has something new.
  virtual void start(std::function<void()> wake) = 0;
  // Takes what has come since the last call. Nothing after `finished` or `response`.
  virtual ReplyPart poll() = 0;
  // Whether far more has piled up than a client that reads at all would leave. Safe while poll() is not running.
  virtual bool overflowing() const { return false; }

  std::chrono::seconds ping_interval{0};  // silence in a stream before a comment line; 0: never
  std::string request_id;                 // for the log; set before start()
};

using Reply = std::variant<Response, std::unique_ptr<PendingReply>>;

}  // namespace bankml
