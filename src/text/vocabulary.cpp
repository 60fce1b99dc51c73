#include "text/vocabulary.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "base/printable.hpp"
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
  return 0;  // undefined, or a type of a later format: a token that is never shown
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

std::size_t TokenTextHash::operator()(std::string_view text) const noexcept {
  // Multiply and fold the high half down, 8 bytes a step; the last step may read bytes again. Odd constants of
  // well-mixed bits.
  constexpr std::uint64_t kMultiplier = 0x9E3779B97F4A7C15u, kFinish = 0xD6E8FEB86659FD93u;
  const auto load = [&]<class T>(T, std::size_t at) {
    T value;
    std::memcpy(&value, text.data() + at, sizeof value);
    return std::uint64_t{value};
  };
  const std::size_t n = text.size();
  std::uint64_t hash = n;
  const auto mix = [&](std::uint64_t value) {
    hash = (hash ^ value) * kMultiplier;
    hash ^= hash >> 32;
  };
  if (n >= 8) {
    for (std::size_t at = 0; at + 8 < n; at += 8) mix(load(std::uint64_t{}, at));
    mix(load(std::uint64_t{}, n - 8));
  } else if (n >= 4) {
    mix(load(std::uint32_t{}, 0) << 32 | load(std::uint32_t{}, n - 4));
  } else if (n > 0) {
    mix(load(std::uint8_t{}, 0) << 16 | load(std::uint8_t{}, n / 2) << 8 | load(std::uint8_t{}, n - 1));
  }
  hash *= kFinish;
  return static_cast<std::size_t>(hash ^ hash >> 32);
}

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
  std::size_t empty = 0;
  for (TokenId id = 0; id < size(); ++id) {
    const auto i = static_cast<std::size_t>(id);
    if (!types.empty()) attributes_[i] = attributes_of(types[i]);
    if (texts_[i].empty()) {
      texts_[i] = fmt::format("[EMPTY_{}]", id);
      ++empty;
    }
    longest_ = std::max(longest_, texts_[i].size());
    const auto [entry, is_new] = index_.try_emplace(texts_[i], id);
    if (!is_new) {
      throw Error(ErrorKind::invalid_request, fmt::format("vocabulary: tokens {} and {} have the same text {}",
                                                          entry->second, id, printable(texts_[i])));
    }
  }
  if (empty > 0) log_warning("vocabulary: tokens without text, called [EMPTY_id]: {}", empty);
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
