#include <fmt/core.h>

#include "bankml/base/error.hpp"
#include "bankml/base/utf8.hpp"
#include "bankml/engine/slot_file.hpp"

namespace bankml {
namespace {

// Characters that are separators, reserved or invisible on some system, or that look like one of those.
bool is_forbidden(char32_t c) noexcept {
  constexpr std::u32string_view kReserved = U"/\\:*?\"<>|";
  constexpr std::u32string_view kLookalikes = U"\uFFFD\uFEFF\uFF0E\u2215\u2216";
  return c <= 0x1F || (c >= 0x7F && c <= 0x9F) || kReserved.find(c) != kReserved.npos ||
         kLookalikes.find(c) != kLookalikes.npos;
}

[[noreturn]] void refuse(std::string_view why) {
  throw Error(ErrorKind::invalid_request, fmt::format("filename: expected a plain file name, but it {}", why));
}

}  // namespace

void check_slot_file_name(std::string_view name) {
  constexpr std::size_t kLongest = 255;
  if (name.empty()) refuse("is empty");
  if (name.size() > kLongest) refuse(fmt::format("is {} bytes long, more than {}", name.size(), kLongest));
  for (std::size_t i = 0; i < name.size();) {
    const Utf8Char c = decode_utf8(name, i);
    if (!c.valid) refuse("is not valid UTF-8");
    if (is_forbidden(c.code)) refuse(fmt::format("holds the character U+{:04X}", static_cast<std::uint32_t>(c.code)));
    i += c.length;
  }
  if (name.front() == ' ' || name.back() == ' ') refuse("begins or ends with a space");
  if (name.back() == '.') refuse("ends with a dot");
  if (name.find("..") != name.npos) refuse("holds two dots in a row");
}

}  // namespace bankml
