#pragma once
// How the texts of a vocabulary spell bytes and spaces.
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bankml {

// Byte-level BPE (GPT-2): every byte is written as a printable character. Bytes 21-7E, A1-AC and AE-FF are the code
// points of the same number, the other 68 follow from U+0100 in ascending order.
char32_t alphabet_char(std::uint8_t byte) noexcept;
std::string alphabet_from_bytes(std::string_view bytes);
// The way back. A character outside of the alphabet stays as it is.
std::string bytes_from_alphabet(std::string_view text);

// SPM: U+2581 stands for a space.
inline constexpr std::string_view kSpmSpace = "\xE2\x96\x81";
std::string spaces_from_spm(std::string_view text);

// SPM: the byte of "<0x41>". nullopt if it has another form.
std::optional<std::uint8_t> parse_byte_token(std::string_view text) noexcept;
std::string byte_token(std::uint8_t byte);

}  // namespace bankml
