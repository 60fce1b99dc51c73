#pragma once
// The text of HTTP answers.
#include <string>
#include <string_view>

#include "server/http.hpp"

namespace bankml {

inline constexpr int kMaxRequests = 100;      // of one connection
inline constexpr int kRetryAfterSeconds = 1;  // what answers with status 503 advise

// How long the connection stays open after an answer.
struct KeepAlive {
  bool kept = false;
  int seconds = 0;  // of silence until it is closed
};

std::string_view reason_phrase(int status) noexcept;

// Status line and headers, with the empty line; the body is `response.body`.
std::string response_head(const Response& response, const Headers& headers, KeepAlive keep);

// The same for a stream of events. `chunked`: false for HTTP/1.0, where the end of the connection ends the stream.
std::string stream_head(const Headers& headers, bool chunked, KeepAlive keep);

// Appends a part of a stream, and its end if it is the last.
void append_chunk(std::string& out, std::string_view part, bool last, bool chunked);

}  // namespace bankml
