#pragma once
// The character properties that tokenization depends on (docs/tokenizers.md, section 7).
#include <cstdint>

namespace bankml {

// A set of properties, as bits. A code point has at most one of the general categories (Unicode 15.1, by first letter),
// or none: controls, formats, separators, private use, unassigned.
using CharClass = std::uint8_t;
inline constexpr CharClass kLetter = 1, kNumber = 2, kPunctuation = 4, kMark = 8, kSymbol = 16;
inline constexpr CharClass kSpace = 32;  // property White_Space

// Any value is accepted; what is no code point has no properties.
CharClass char_class(char32_t code) noexcept;

}  // namespace bankml
