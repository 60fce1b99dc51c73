#include "server/http.hpp"

#include <algorithm>

#include "server/json_writer.hpp"
#include "server/request_head.hpp"

namespace bankml {
namespace {

char lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool equal_ignoring_case(std::string_view a, std::string_view b) noexcept {
  return std::ranges::equal(a, b, [](char x, char y) { return lower(x) == lower(y); });
}

}  // namespace

std::string_view Request::header(std::string_view name) const noexcept {
  for (const auto& [key, value] : headers) {
    if (equal_ignoring_case(key, name)) return value;
  }
  return {};
}

std::string Request::query_value(std::string_view name) const {
  std::string_view rest = query;
  while (!rest.empty()) {
    const std::string_view pair = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), pair.size() + 1));
    const std::size_t equals = std::min(pair.find('='), pair.size());
    if (percent_decoded(pair.substr(0, equals), true) != name) continue;
    return equals == pair.size() ? std::string() : percent_decoded(pair.substr(equals + 1), true);
  }
  return {};
}

Response json_response(const boost::json::value& body, int status) {
  return {.status = status, .content_type = "application/json; charset=utf-8", .body = to_json(body), .headers = {}};
}

}  // namespace bankml
