#include "bankml/base/utf8.hpp"

#include <algorithm>

namespace bankml {

Utf8Char decode_utf8(std::string_view text, std::size_t pos) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[pos + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1, true};
  const Utf8Char bad_lead{kReplacementCharacter, 1, false};
  // Limits of the second byte: what keeps out overlong forms, surrogates and code points above U+10FFFF (RFC 3629,
  // section 4).
  unsigned char low = 0x80, high = 0xBF;
  std::uint8_t length = 0;
  char32_t code = 0;
  if (lead < 0xC2) return bad_lead;
  if (lead < 0xE0) {
    length = 2;
    code = lead & 0x1Fu;
  } else if (lead < 0xF0) {
    length = 3;
    code = lead & 0x0Fu;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead < 0xF5) {
    length = 4;
    code = lead & 0x07u;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return bad_lead;
  }
  for (std::uint8_t i = 1; i < length; ++i) {
    if (pos + i >= text.size() || byte(i) < low || byte(i) > high) return {kReplacementCharacter, i, false};
    code = code << 6 | (byte(i) & 0x3Fu);
    low = 0x80;
    high = 0xBF;
  }
  return {code, length, true};
}

void append_utf8(std::string& out, char32_t code) {
  const auto tail = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += {static_cast<char>(0xC0 | code >> 6), tail(0)};
  } else if (code < 0x10000) {
    out += {static_cast<char>(0xE0 | code >> 12), tail(6), tail(0)};
  } else {
    out += {static_cast<char>(0xF0 | code >> 18), tail(12), tail(6), tail(0)};
  }
}

std::size_t complete_utf8_prefix(std::string_view text) noexcept {
  const std::size_t reach = std::min<std::size_t>(3, text.size());
  for (std::size_t back = 1; back <= reach; ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    std::size_t length = 1;
    if ((byte & 0xE0) == 0xC0) length = 2;
    if ((byte & 0xF0) == 0xE0) length = 3;
    if ((byte & 0xF8) == 0xF0) length = 4;
    if (back < length) return text.size() - back;
  }
  return text.size();
}

bool is_valid_utf8(std::string_view text) noexcept {
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    if (!c.valid) return false;
    pos += c.length;
  }
  return true;
}

std::string replace_invalid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    if (c.valid) {
      out += text.substr(pos, c.length);
    } else {
      append_utf8(out, kReplacementCharacter);
    }
    pos += c.length;
  }
  return out;
}

}  // namespace bankml
