#pragma once
// A request before and after it is parsed: where its head ends, what can't be served, and what is (docs/http-api.md 1).
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/http.hpp"

namespace bankml {

using RequestParser = boost::beast::http::request_parser<boost::beast::http::string_body>;

// Why a request can't be served before it is routed.
struct Refusal {
  int status = 0;  // 0: it can
  const char* why = "";

  explicit operator bool() const noexcept { return status != 0; }
};

inline constexpr std::size_t kMaxTarget = 32768, kMaxHeaderLine = 8192, kMaxHeaders = 100;
// Beyond that no head can be within the limits above.
inline constexpr std::size_t kMaxHead = kMaxTarget + kMaxHeaders * kMaxHeaderLine;
inline constexpr Refusal kMalformed = {400, "the request is not well-formed HTTP/1.1"};
inline constexpr Refusal kLongTarget = {414, "the request target is longer than 32768 bytes"};
inline constexpr Refusal kLargeBody = {413, "the request body is larger than the server takes"};
inline constexpr Refusal kManyBodies = {503, "too many large requests are being received: try again later"};
// How many of the largest bodies all together may take the memory of.
inline constexpr std::int64_t kBodiesAtOnce = 10;
inline constexpr std::int64_t kMaxForm = 1 << 20;  // bytes of a URL-encoded form

// Looks for the end of a head in what has been received so far; each call continues where the last one stopped.
class HeadScanner {
 public:
  struct Found {
    std::size_t size = 0;  // of the head with its empty line; 0: not complete yet
    Refusal refusal = {};
  };
  // `text`: all that has been received, a longer one with each call.
  Found scan(std::string_view text);

 private:
  std::size_t seen_ = 0;
};

// What is wrong with a parsed head.
Refusal refused_head(const RequestParser& parser);

// What answers an error of the parser; nothing if the connection itself is at its end.
Refusal refused_error(const boost::system::error_code& error);

// The bytes that the body of this request may have.
std::uint64_t body_limit(const RequestParser& parser, std::int64_t limit);

struct Incoming {
  Request request;
  bool keep_alive = false, chunked = true;  // chunked: whether the client knows chunked answers
};

// The request of a parser that is done; its body is moved out.
Incoming take_request(RequestParser& parser);

// The path and query of a target: all of it, but for "http://host/path", which proxies are sent (RFC 9112, 3.2.2).
std::string_view without_authority(std::string_view target) noexcept;

// "%41" to "A"; what is no such sequence stays. `plus_is_space`: as in queries.
std::string percent_decoded(std::string_view text, bool plus_is_space);

// The client's own name for its request, if it can stand in a header and in a log line; else a random one.
std::string request_id(std::string_view proposed);

// For log lines: control characters replaced, cut to a length that is enough to recognise it.
std::string printable_start(std::string_view text);

}  // namespace bankml
