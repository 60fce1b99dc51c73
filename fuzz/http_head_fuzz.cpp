// What comes from a socket before a request is routed: however it is cut into pieces, the same head or the same
// refusal.
#include <boost/asio/buffer.hpp>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/request_head.hpp"

namespace {

using bankml::HeadScanner;

HeadScanner::Found scan_in_pieces(std::string_view text, std::size_t piece) {
  HeadScanner scanner;
  HeadScanner::Found found;
  for (std::size_t end = 0; end < text.size() && found.size == 0 && !found.refusal;) {
    end += piece < text.size() - end ? piece : text.size() - end;
    found = scanner.scan(text.substr(0, end));
  }
  return found;
}

// Whether the head can be routed.
bool use_head(std::string_view head) {
  bankml::RequestParser parser;
  parser.header_limit(static_cast<std::uint32_t>(bankml::kMaxHead));
  boost::system::error_code error;
  parser.put(boost::asio::buffer(head.data(), head.size()), error);
  if (error && error != boost::beast::http::error::need_more) return false;
  if (bankml::refused_head(parser)) return false;
  bankml::body_limit(parser, 1000);
  const std::string target(parser.get().target());
  bankml::percent_decoded(target, true);
  bankml::printable_start(target);
  if (parser.is_done()) bankml::take_request(parser);
  return true;
}

// Bytes of the head that can be routed, 0 if it isn't complete, -1 if it is refused.
std::ptrdiff_t outcome(std::string_view text, std::size_t piece) {
  const HeadScanner::Found found = scan_in_pieces(text, piece);
  if (found.refusal) return -1;
  if (found.size == 0) return 0;
  return use_head(text.substr(0, found.size)) ? static_cast<std::ptrdiff_t>(found.size) : -1;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (outcome(text, size) != outcome(text, 1)) std::abort();
  return 0;
}
