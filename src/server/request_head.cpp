#include "server/request_head.hpp"

#include <algorithm>
#include <array>
#include <boost/beast/core/string.hpp>
#include <charconv>
#include <utility>

#include "server/shapes.hpp"

namespace bankml {
namespace {

namespace http = boost::beast::http;
using boost::beast::iequals;

// Others are refused before they are routed.
constexpr std::array kMethods = {http::verb::get,   http::verb::head,    http::verb::post,   http::verb::put,
                                 http::verb::patch, http::verb::delete_, http::verb::options};

constexpr std::string_view kEnd = "\r\n\r\n", kLineEnd = "\r\n";

bool is_letter(char c) noexcept {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

// A complete head, line by line, as it was sent.
Refusal refused_text(std::string_view head) {
  std::size_t lines = 0;
  for (std::size_t start = 0; start < head.size(); ++lines) {
    const std::string_view line = head.substr(start, head.find(kLineEnd, start) - start);
    start += line.size() + kLineEnd.size();
    if (lines == 0) {
      const std::size_t target = std::min(line.find(' '), line.size());
      if (line.size() - target > kMaxTarget + std::string_view("  HTTP/1.1").size()) return kLongTarget;
      continue;
    }
    // A header that goes on in the next line was deprecated because two readers of it may not agree.
    if (line.starts_with(' ') || line.starts_with('\t')) return {400, "a header goes on in the next line"};
    if (line.size() > kMaxHeaderLine) return {400, "a header line is longer than 8192 bytes"};
    // One line is the empty one at the end.
    if (lines > kMaxHeaders && !line.empty()) return {400, "there are more than 100 header lines"};
  }
  return {};
}

bool is_form(const RequestParser& parser) {
  constexpr std::string_view kForm = "application/x-www-form-urlencoded";
  const auto type = parser.get()[http::field::content_type];
  return iequals(type.substr(0, kForm.size()), kForm);
}

}  // namespace

HeadScanner::Found HeadScanner::scan(std::string_view text) {
  // Another protocol, most often TLS: there may be no end of a head to wait for.
  if (!text.empty() && !is_letter(text.front())) return {.refusal = kMalformed};
  const std::size_t from = seen_ - std::min(seen_, kEnd.size() - 1);
  const std::size_t end = text.find(kEnd, from);
  seen_ = text.size();
  if (end != std::string_view::npos) {
    const std::size_t size = end + kEnd.size();
    return {.size = size, .refusal = refused_text(text.substr(0, end + kLineEnd.size()))};
  }
  const std::string_view line = text.substr(0, text.find('\n'));
  if (const std::size_t space = line.find(' '); space != std::string_view::npos) {
    const std::size_t target = space + 1;
    if (std::min(line.find(' ', target), line.size()) - target > kMaxTarget) return {.refusal = kLongTarget};
  }
  if (text.size() >= kMaxHead) return {.refusal = {400, "the header has no end"}};
  return {};
}

Refusal refused_head(const RequestParser& parser) {
  const auto& message = parser.get();
  if (std::ranges::find(kMethods, message.method()) == kMethods.end()) return {400, "the request method is unknown"};
  if (message.target().size() > kMaxTarget) return kLongTarget;
  const auto transfer = message[http::field::transfer_encoding];
  if (!transfer.empty() && !iequals(transfer, "chunked")) {
    return {400, "Transfer-Encoding: only 'chunked' is understood"};
  }
  const auto content = message[http::field::content_encoding];
  if (!content.empty() && !iequals(content, "identity")) {
    return {415, "Content-Encoding: the body must not be compressed"};
  }
  return {};
}

Refusal refused_error(const boost::system::error_code& error) {
  if (error == http::error::body_limit) return kLargeBody;
  const bool ended = error == http::error::end_of_stream || error == http::error::partial_message;
  const bool of_parser = error.category() == http::make_error_code(http::error::bad_value).category();
  return !ended && of_parser ? kMalformed : Refusal{};
}

Incoming take_request(RequestParser& parser) {
  auto message = parser.release();
  Incoming incoming;
  incoming.keep_alive = message.keep_alive();
  incoming.chunked = message.version() >= 11;
  Request& request = incoming.request;
  request.method = message.method_string();
  std::string_view target(message.target().data(), message.target().size());
  target = without_authority(target.substr(0, target.find('#')));
  const std::size_t question = std::min(target.find('?'), target.size());
  request.path = percent_decoded(target.substr(0, question), false);
  request.query = target.substr(std::min(question + 1, target.size()));
  for (const auto& field : message) request.headers.emplace_back(field.name_string(), field.value());
  request.id = request_id(request.header("X-Request-Id"));
  request.body = std::move(message.body());
  return incoming;
}

std::uint64_t body_limit(const RequestParser& parser, std::int64_t limit) {
  return static_cast<std::uint64_t>(is_form(parser) ? std::min(limit, kMaxForm) : limit);
}

std::string_view without_authority(std::string_view target) noexcept {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() || !iequals(target.substr(0, scheme.size()), scheme)) continue;
    const std::size_t end = target.find_first_of("/?", scheme.size());
    return end == std::string_view::npos ? "/" : target.substr(end);
  }
  return target;
}

std::string percent_decoded(std::string_view text, bool plus_is_space) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    unsigned byte = 0;
    const char* const digits = text.data() + i + 1;
    if (text[i] == '%' && i + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      out += static_cast<char>(byte);
      i += 2;
    } else {
      out += plus_is_space && text[i] == '+' ? ' ' : text[i];
    }
  }
  return out;
}

std::string request_id(std::string_view proposed) {
  constexpr std::size_t kLongest = 128, kOwnLength = 16;
  const auto allowed = [](char c) {
    return is_letter(c) || (c >= '0' && c <= '9') || std::string_view("-_.:/+=").find(c) != std::string_view::npos;
  };
  const bool usable = !proposed.empty() && proposed.size() <= kLongest && std::ranges::all_of(proposed, allowed);
  return usable ? std::string(proposed) : random_id(kOwnLength);
}

std::string printable_start(std::string_view text) {
  constexpr std::size_t kLogged = 300;
  constexpr char kDelete = 0x7f;
  std::string out(text.substr(0, kLogged));
  std::ranges::replace_if(
      out, [](char c) { return (c >= 0 && c < ' ') || c == kDelete; }, '?');
  return out;
}

}  // namespace bankml
