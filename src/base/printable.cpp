#include "base/printable.hpp"

#include <fmt/format.h>

#include <iterator>

namespace bankml {

std::string printable(std::string_view text) {
  constexpr std::size_t kShown = 80;
  std::string out = "'";
  for (const char c : text.substr(0, kShown)) {
    if (c >= 0x20 && c < 0x7f) {
      out += c;
    } else {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(c));
    }
  }
  if (text.size() > kShown) out += "...";
  return out += '\'';
}

}  // namespace bankml
