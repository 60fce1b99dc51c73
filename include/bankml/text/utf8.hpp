#pragma once
// Boundaries of UTF-8 characters in byte strings of unknown quality.
#include <cstddef>
#include <string>
#include <string_view>

namespace bankml {

// Length of the longest prefix of `text` that does not end inside a UTF-8 character: looks at the last 3 bytes only, so
// invalid bytes further left don't matter.
std::size_t complete_utf8_prefix(std::string_view text) noexcept;

bool is_valid_utf8(std::string_view text) noexcept;

// `text` with each maximal bad byte run replaced by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

}  // namespace bankml
