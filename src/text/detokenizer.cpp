#include "bankml/text/detokenizer.hpp"

#include <utility>

#include "bankml/text/utf8.hpp"

namespace bankml {

std::optional<std::string> StreamDecoder::push(std::string_view piece) {
  held_ += piece;
  if (complete_utf8_prefix(held_) < held_.size()) return std::nullopt;
  return flush();
}

std::string StreamDecoder::flush() {
  return std::exchange(held_, {});
}

}  // namespace bankml
