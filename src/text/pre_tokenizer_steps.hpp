#pragma once
// The expressions of pre-tokenizers as functions. Each is named after the expression it equals: see docs/tokenizers.md,
// section 3.2. There is no backtracking and no recursion: the time is linear in the length of the text.
#include <cstddef>

#include "text/unicode.hpp"

namespace bankml {

// A piece of text: [begin, end) of two arrays. The expressions see nothing outside it.
struct PieceView {
  const char32_t* code;
  const CharClass* classes;
  std::size_t begin, end;
};

struct StepMatch {
  std::size_t begin, end;  // begin == end: nothing found
};

// The first match at or after `pos`.
using StepFunction = StepMatch (*)(const PieceView& piece, std::size_t pos);

StepMatch find_gpt2(const PieceView& piece, std::size_t pos);
StepMatch find_llama3(const PieceView& piece, std::size_t pos);
StepMatch find_qwen2(const PieceView& piece, std::size_t pos);
StepMatch find_qwen35(const PieceView& piece, std::size_t pos);
StepMatch find_tekken(const PieceView& piece, std::size_t pos);
StepMatch find_gpt4o(const PieceView& piece, std::size_t pos);
StepMatch find_seed_coder(const PieceView& piece, std::size_t pos);
StepMatch find_deepseek3(const PieceView& piece, std::size_t pos);  // the third expression of deepseek-v3

StepMatch find_number(const PieceView& piece, std::size_t pos);              // \p{N}
StepMatch find_numbers(const PieceView& piece, std::size_t pos);             // \p{N}+
StepMatch find_up_to_3_numbers(const PieceView& piece, std::size_t pos);     // \p{N}{1,3}
StepMatch find_3_ascii_digits(const PieceView& piece, std::size_t pos);      // [0-9][0-9][0-9]
StepMatch find_signs(const PieceView& piece, std::size_t pos);               // [\p{P}\$\+<=>\^~\|]+
StepMatch find_signs_or_backticks(const PieceView& piece, std::size_t pos);  // the same and `
StepMatch find_newline(const PieceView& piece, std::size_t pos);             // [\r\n]
StepMatch find_trailing_spaces(const PieceView& piece, std::size_t pos);     // \s+$
StepMatch find_letters(const PieceView& piece, std::size_t pos);             // \s?\p{L}+
StepMatch find_punctuation(const PieceView& piece, std::size_t pos);         // \s?\p{P}+

// The ranges of characters that deepseek models list.
StepMatch find_deepseek_cased(const PieceView& piece, std::size_t pos);        // \s?[CASED]+
StepMatch find_deepseek_punctuation(const PieceView& piece, std::size_t pos);  // \s?[PUNCT]+
StepMatch find_deepseek_han(const PieceView& piece, std::size_t pos);          // [HAN]+
StepMatch find_deepseek3_cjk(const PieceView& piece, std::size_t pos);         // [U+4E00-9FA5 U+3040-309F U+30A0-30FF]+

}  // namespace bankml
