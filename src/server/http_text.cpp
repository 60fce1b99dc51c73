#include "server/http_text.hpp"

#include <fmt/format.h>

#include <iterator>

namespace bankml {
namespace {

void append_header(std::string& out, std::string_view name, std::string_view value) {
  ((out += name) += ": ") += value;
  out += "\r\n";
}

// What all answers begin with.
std::string common_head(int status, const Headers& headers, KeepAlive keep) {
  std::string out = fmt::format("HTTP/1.1 {} {}\r\n", status, reason_phrase(status));
  append_header(out, "Server", "bankmld");
  for (const auto& [name, value] : headers) append_header(out, name, value);
  if (keep.kept) {
    append_header(out, "Keep-Alive", fmt::format("timeout={}, max={}", keep.seconds, kMaxRequests));
  } else {
    append_header(out, "Connection", "close");
  }
  return out;
}

}  // namespace

std::string_view reason_phrase(int status) noexcept {
  switch (status) {
    case 200:
      return "OK";
    case 301:
      return "Moved Permanently";
    case 304:
      return "Not Modified";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
    default:
      return "Unknown";
  }
}

std::string response_head(const Response& response, const Headers& headers, KeepAlive keep) {
  std::string out = common_head(response.status, headers, keep);
  for (const auto& [name, value] : response.headers) append_header(out, name, value);
  if (response.status == 503) append_header(out, "Retry-After", fmt::to_string(kRetryAfterSeconds));
  append_header(out, "Content-Type", response.content_type);
  append_header(out, "Content-Length", fmt::to_string(response.body.size()));
  return out += "\r\n";
}

std::string stream_head(const Headers& headers, bool chunked, KeepAlive keep) {
  std::string out = common_head(200, headers, keep);
  append_header(out, "X-Accel-Buffering", "no");
  append_header(out, "Content-Type", "text/event-stream");
  if (chunked) append_header(out, "Transfer-Encoding", "chunked");
  return out += "\r\n";
}

void append_chunk(std::string& out, std::string_view part, bool last, bool chunked) {
  if (!chunked) {
    out += part;
    return;
  }
  if (!part.empty()) {
    fmt::format_to(std::back_inserter(out), "{:x}\r\n", part.size());
    (out += part) += "\r\n";
  }
  if (last) out += "0\r\n\r\n";
}

}  // namespace bankml
