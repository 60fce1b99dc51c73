#include "options/environment_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "bankml/base/error.hpp"
#include "options/values.hpp"

namespace bankml {
namespace {

std::string_view unquoted(std::string_view value) noexcept {
  const bool quoted =
      value.size() >= 2 && (value.front() == '"' || value.front() == '\'') && value.back() == value.front();
  return quoted ? value.substr(1, value.size() - 2) : value;
}

}  // namespace

std::map<std::string, std::string, std::less<>> parse_environment_file(std::string_view text) {
  std::map<std::string, std::string, std::less<>> variables;
  std::size_t number = 0;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    const std::string_view line = trimmed(text.substr(start, end - start));
    start = end + 1;
    ++number;
    if (line.empty() || line.front() == '#' || line.front() == ';') continue;
    const std::size_t equals = line.find('=');
    if (equals == 0 || equals == std::string_view::npos) {
      throw Error(ErrorKind::invalid_request, fmt::format("line {}: expected NAME=VALUE", number));
    }
    variables[std::string(trimmed(line.substr(0, equals)))] = unquoted(trimmed(line.substr(equals + 1)));
  }
  return variables;
}

}  // namespace bankml
