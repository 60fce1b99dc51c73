#include "text/vocabulary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "bankml/text/utf8.hpp"
#include "text/byte_alphabet.hpp"

namespace bankml {
namespace {

TokenAttributes attributes_of(std::int32_t type) {
  switch (static_cast<TokenType>(type)) {
    case TokenType::normal:
      return kNormal;
    case TokenType::unknown:
      return kUnknown;
    case TokenType::control:
      return kControl;
    case TokenType::user_defined:
      return kUserDefined;
    case TokenType::unused:
      return kUnused;
    case TokenType::byte:
      return kByte;
  }
  return 0;  // a type of a later format: a token that is never shown
}

std::string piece_of(const Vocabulary& vocabulary, TokenId id, bool is_spm) {
  const std::string& text = vocabulary.text(id);
  if (vocabulary.has(id, kControl | kUnknown | kUserDefined)) return text;
  if (vocabulary.has(id, kByte)) {
    if (const auto byte = parse_byte_token(text)) return std::string(1, static_cast<char>(*byte));
  }
  if (!vocabulary.has(id, kNormal | kByte)) return {};
  return is_spm ? spaces_from_spm(text) : bytes_from_alphabet(text);
}

}  // namespace

Vocabulary::Vocabulary(std::vector<std::string> texts, const std::vector<std::int32_t>& types)
    : texts_(std::move(texts)) {
  if (texts_.empty()) throw Error(ErrorKind::invalid_request, "vocabulary: expected tokens, there are none");
  if (texts_.size() > static_cast<std::size_t>(std::numeric_limits<TokenId>::max())) {
    throw Error(ErrorKind::invalid_request, fmt::format("vocabulary: {} tokens are too many", texts_.size()));
  }
  if (!types.empty() && types.size() < texts_.size()) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("vocabulary: expected types for {} tokens, got {}", texts_.size(), types.size()));
  }
  attributes_.resize(texts_.size(), kNormal);
  index_.reserve(texts_.size());
  for (TokenId id = 0; id < size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    if (!types.empty()) attributes_[i] = attributes_of(types[i]);
    if (texts_[i].empty()) {
      texts_[i] = fmt::format("[EMPTY_{}]", id);
      log_warning("vocabulary: token {} has no text, {} is taken", id, texts_[i]);
    }
    longest_ = std::max(longest_, texts_[i].size());
    const auto [entry, is_new] = index_.try_emplace(texts_[i], id);
    if (!is_new) {
      throw Error(ErrorKind::invalid_request, fmt::format("vocabulary: tokens {} and {} have the same text \"{}\"",
                                                          entry->second, id, replace_invalid_utf8(texts_[i])));
    }
  }
}

std::optional<TokenId> Vocabulary::find(std::string_view text) const {
  const auto entry = index_.find(text);
  return entry == index_.end() ? std::nullopt : std::optional(entry->second);
}

PieceTable::PieceTable(const Vocabulary& vocabulary, bool is_spm) {
  ends_.reserve(static_cast<std::size_t>(vocabulary.size()) + 1);
  ends_.push_back(0);
  for (TokenId id = 0; id < vocabulary.size(); ++id) {
    bytes_ += piece_of(vocabulary, id, is_spm);
    if (bytes_.size() > std::numeric_limits<std::uint32_t>::max()) {
      throw Error(ErrorKind::invalid_request, "vocabulary: the texts of the tokens are longer than 4 GiB");
    }
    ends_.push_back(static_cast<std::uint32_t>(bytes_.size()));
  }
}

}  // namespace bankml
