#pragma once
#include <algorithm>
#include <string_view>

namespace bankml {

// Length of the longest end of `text` that could become `tag`.
inline std::size_t partial_tag(std::string_view text, std::string_view tag) noexcept {
  std::size_t n = std::min(text.size(), tag.size() - 1);
  while (!tag.starts_with(text.substr(text.size() - n))) --n;
  return n;
}

}  // namespace bankml
