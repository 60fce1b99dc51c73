#pragma once
// The tokens of a vocabulary: texts, attributes, pieces, and those with a special meaning.
#include <boost/unordered/unordered_flat_map.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/text/tokenizer.hpp"

namespace bankml {

// Attributes, as bits: a token may have several (docs/tokenizers.md, section 6).
using TokenAttributes = std::uint8_t;
inline constexpr TokenAttributes kNormal = 1, kUnknown = 2, kControl = 4, kUserDefined = 8, kUnused = 16, kByte = 32;
inline constexpr TokenAttributes kStripRight = 64;  // takes the white space that follows it in a text

// A hash of short byte strings. Text is looked up in a vocabulary about three times a byte: boost::hash takes twice as
// long.
struct TokenTextHash {
  using is_avalanching = void;
  std::size_t operator()(std::string_view text) const noexcept;
};

class Vocabulary {
 public:
  // Throws Error(invalid_request) if the tables don't fit each other or a text occurs twice.
  Vocabulary(std::vector<std::string> texts, const std::vector<std::int32_t>& types);
  Vocabulary(const Vocabulary&) = delete;  // the index refers to the texts
  Vocabulary& operator=(const Vocabulary&) = delete;

  std::int32_t size() const noexcept { return static_cast<std::int32_t>(texts_.size()); }
  const std::string& text(TokenId id) const { return texts_[static_cast<std::size_t>(id)]; }
  std::optional<TokenId> find(std::string_view text) const;
  std::size_t longest() const noexcept { return longest_; }  // bytes

  bool has(TokenId id, TokenAttributes any_of) const {
    return (attributes_[static_cast<std::size_t>(id)] & any_of) != 0;
  }
  void add(TokenId id, TokenAttributes attributes) { attributes_[static_cast<std::size_t>(id)] |= attributes; }
  void remove(TokenId id, TokenAttributes attributes) {
    attributes_[static_cast<std::size_t>(id)] &= static_cast<TokenAttributes>(~attributes);
  }
  void set(TokenId id, TokenAttributes attributes) { attributes_[static_cast<std::size_t>(id)] = attributes; }

 private:
  std::vector<std::string> texts_;
  std::vector<TokenAttributes> attributes_;
  boost::unordered_flat_map<std::string_view, TokenId, TokenTextHash> index_;
  std::size_t longest_ = 0;
};

// Tokens with a role, from the keys of the file and, where it has none, by their texts (section 6).
struct SpecialTokens {
  std::optional<TokenId> bos, eos, eot, eom;
  std::optional<TokenId> fim_pre, fim_suf, fim_mid, fim_pad, fim_rep, fim_sep;
  std::vector<TokenId> eog;  // ascending
};

// Adjusts the attributes of the tokens that it recognises. Only the ids and names of `source` are read.
SpecialTokens derive_special_tokens(const VocabularySource& source, Vocabulary& vocabulary);

// What the tokens stand for in a text (section 5.1): one byte string a token, "" where none is ever shown.
class PieceTable {
 public:
  PieceTable(const Vocabulary& vocabulary, bool is_spm);
  std::string_view operator[](TokenId id) const {
    const auto i = static_cast<std::size_t>(id);
    return std::string_view(bytes_).substr(ends_[i], ends_[i + 1] - ends_[i]);
  }

 private:
  std::string bytes_;
  std::vector<std::uint32_t> ends_;  // ends_[id] is where token id begins
};

}  // namespace bankml
