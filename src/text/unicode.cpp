#include "text/unicode.hpp"

namespace bankml {
namespace {

#include "text/unicode_table.inc"

// White_Space of PropList.txt: 25 code points, unchanged since Unicode 6.3.
constexpr bool is_white_space(char32_t c) {
  return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
         c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

}  // namespace

CharClass char_class(char32_t code) noexcept {
  if (is_white_space(code)) return kSpace;  // none of them is in one of the categories
  if (code >= kTableEnd) return 0;
  const std::uint32_t cell = kBlockOf[code / kBlockSize] * kBlockSize + code % kBlockSize;
  const unsigned category = kCategories[cell / 2] >> (cell % 2 * 4) & 0xF;
  return static_cast<CharClass>(1u << category >> 1);
}

}  // namespace bankml
