#pragma once
// UTF-8 in byte strings of unknown quality.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace bankml {

inline constexpr char32_t kReplacementCharacter = 0xFFFD;

struct Utf8Char {
  char32_t code;        // kReplacementCharacter if not valid
  std::uint8_t length;  // bytes taken, at least 1: a bad sequence is taken up to where it went wrong
  bool valid;
};

// The character at `pos` < text.size(). Valid is what RFC 3629 allows: no surrogates, no overlong forms, nothing above
// U+10FFFF. A bad sequence is one "maximal subpart" (The Unicode Standard, section 3.9): the bytes that could have
// begun a valid one, or a single byte.
Utf8Char decode_utf8(std::string_view text, std::size_t pos) noexcept;

// Appends a code point up to U+10FFFF.
void append_utf8(std::string& out, char32_t code);

// Length of the longest prefix of `text` that does not end inside a UTF-8 character, as the peer tells it: by a leading
// byte among the last 3 that announces more bytes than follow it, whatever these are.
std::size_t complete_utf8_prefix(std::string_view text) noexcept;

bool is_valid_utf8(std::string_view text) noexcept;

// `text` with each bad sequence (see decode_utf8) replaced by one U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace bankml
