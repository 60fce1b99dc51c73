#pragma once
// Small vocabularies for tests.
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bankml/text/tokenizer.hpp"
#include "text/byte_alphabet.hpp"

namespace bankml {

inline TokenId add_token(VocabularySource& source, std::string text, TokenType type = TokenType::normal,
                         float score = 0) {
  source.tokens.push_back(std::move(text));
  source.types.push_back(static_cast<std::int32_t>(type));
  source.scores.push_back(score);
  return static_cast<TokenId>(source.tokens.size() - 1);
}

// Tokens 0 to 255 are the bytes.
inline VocabularySource bpe_of_bytes(std::string pre = "gpt-2") {
  VocabularySource source;
  source.model = "gpt2";
  source.pre = std::move(pre);
  for (int byte = 0; byte < 256; ++byte) {
    const char text[] = {static_cast<char>(byte)};
    add_token(source, alphabet_from_bytes({text, 1}));
  }
  return source;
}

// Adds the merges, in order of rank, and a token for each that has none yet.
inline void add_merges(VocabularySource& source, const std::vector<std::pair<std::string, std::string>>& merges) {
  for (const auto& [left, right] : merges) {
    source.merges.push_back(left + " " + right);
    add_token(source, left + right);
  }
}

// <unk>, <s>, </s> as 0, 1, 2, and the byte tokens <0x00> to <0xFF> as 3 to 258.
inline VocabularySource spm_of_bytes() {
  VocabularySource source;
  source.model = "llama";
  add_token(source, "<unk>", TokenType::unknown);
  add_token(source, "<s>", TokenType::control);
  add_token(source, "</s>", TokenType::control);
  for (int byte = 0; byte < 256; ++byte)
    add_token(source, byte_token(static_cast<std::uint8_t>(byte)), TokenType::byte);
  return source;
}
inline constexpr TokenId kFirstSpmByte = 3;

}  // namespace bankml
