#include "text/byte_alphabet.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "bankml/base/utf8.hpp"

namespace bankml {
namespace {

constexpr char32_t kFirstExtra = 0x100;
constexpr int kExtras = 68;

struct Alphabet {
  std::array<char32_t, 256> of_byte{};
  std::array<std::int16_t, kFirstExtra + kExtras> to_byte{};  // -1: not in the alphabet
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.to_byte.fill(-1);
  char32_t extra = kFirstExtra;
  for (int byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    const char32_t code = printable ? static_cast<char32_t>(byte) : extra++;
    alphabet.of_byte[static_cast<std::size_t>(byte)] = code;
    alphabet.to_byte[code] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t alphabet_char(std::uint8_t byte) noexcept {
  return kAlphabet.of_byte[byte];
}

std::string alphabet_from_bytes(std::string_view bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char byte : bytes) append_utf8(out, alphabet_char(static_cast<std::uint8_t>(byte)));
  return out;
}

std::string bytes_from_alphabet(std::string_view text) {
  std::string out;
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    if (c.valid && c.code < kAlphabet.to_byte.size() && kAlphabet.to_byte[c.code] >= 0) {
      out += static_cast<char>(kAlphabet.to_byte[c.code]);
    } else {
      out += text.substr(pos, c.length);
    }
    pos += c.length;
  }
  return out;
}

std::string spaces_from_spm(std::string_view text) {
  std::string out;
  for (std::size_t pos; (pos = text.find(kSpmSpace)) != text.npos; text.remove_prefix(pos + kSpmSpace.size())) {
    out += text.substr(0, pos);
    out += ' ';
  }
  return out += text;
}

std::optional<std::uint8_t> parse_byte_token(std::string_view text) noexcept {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
  std::uint8_t byte = 0;
  const char* end = text.data() + 5;
  const auto result = std::from_chars(text.data() + 3, end, byte, 16);
  return result.ec == std::errc() && result.ptr == end ? std::optional(byte) : std::nullopt;
}

std::string byte_token(std::uint8_t byte) {
  return fmt::format("<0x{:02X}>", byte);
}

}  // namespace bankml
