#pragma once
// The text of HTTP answers.
#include <string>
#include <string_view>

#include "server/http.hpp"

namespace bankml {

inline constexpr int kKeepAliveSeconds = 5;  // an idle connection is closed after that
inline constexpr int kMaxRequests = 100;     // of one connection

std::string_view reason_phrase(int status) noexcept;

// Status line and headers, with the empty line; the body is `response.body`. `keep`: whether the connection stays open.
std::string response_head(const Response& response, const Headers& headers, bool keep);

// The same for a stream of events. `chunked`: false for HTTP/1.0, where the end of the connection ends the stream.
std::string stream_head(const Headers& headers, bool chunked, bool keep);

// Appends a part of a stream, and its end if it is the last.
void append_chunk(std::string& out, std::string_view part, bool last, bool chunked);

}  // namespace bankml
