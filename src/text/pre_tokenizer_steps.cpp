#include "text/pre_tokenizer_steps.hpp"

#include "text/piece_scan.hpp"

namespace bankml {
namespace {

using namespace scan;

std::size_t match_gpt2(const PieceView& s, std::size_t p) {
  if (const std::size_t end = match_contraction(s, p, false); end > p) return end;
  const std::size_t q = p + (code_at(s, p) == ' ');
  if (is(s, q, kLetter)) return run_of(s, q, kLetter);
  if (is(s, q, kNumber)) return run_of(s, q, kNumber);
  if (is_not(s, q, kSpace | kLetter | kNumber)) return run_without(s, q, kSpace | kLetter | kNumber);
  return match_spaces(s, p);
}

// What follows a run of signs and belongs to it.
enum class Tail { nothing, newlines, newlines_and_slashes };
// What a word is: a run of word characters; or one that also ends where a capital follows a small letter.
enum class Words { plain, by_case, by_case_with_contraction };

struct Llama3Rules {
  Words words;
  CharClass word;   // what words are made of
  int max_numbers;  // longest run of numbers
  Tail tail;
};

// U*W+ | U+W* on the run of letters that begins at p (not empty), where U is a letter other than a-z and W one other
// than A-Z. The closed form of first-alternative-wins: docs/tokenizers.md, section 7.2.
std::size_t match_word_by_case(const PieceView& s, std::size_t p) {
  std::size_t end = p, after_non_ascii = p;
  for (; is(s, end, kLetter) && !is_ascii_lower(s.code[end]); ++end) {
    if (!is_ascii_upper(s.code[end])) after_non_ascii = end + 1;
  }
  if (is(s, end, kLetter)) {
    while (is(s, end, kLetter) && !is_ascii_upper(s.code[end])) ++end;
    return end;
  }
  return after_non_ascii > p ? after_non_ascii : end;
}

template <Llama3Rules kRules>
std::size_t match_word(const PieceView& s, std::size_t p) {
  // Any character but newlines, letters and numbers may lead a word.
  const bool leads = is_not(s, p, kLetter | kNumber) && !is_newline(s.code[p]);
  const std::size_t word = p + (leads && is(s, p + 1, kRules.word));
  if (!is(s, word, kRules.word)) return p;
  if constexpr (kRules.words == Words::plain) return run_of(s, word, kRules.word);
  const std::size_t end = match_word_by_case(s, word);
  return kRules.words == Words::by_case ? end : match_contraction(s, end, true);
}

// [^\s\p{L}\p{N}]+ with an optional space before it and kRules.tail after it.
template <Llama3Rules kRules>
std::size_t match_signs(const PieceView& s, std::size_t p) {
  constexpr CharClass kNoSign = kSpace | kNumber | kRules.word;
  const std::size_t signs = p + (code_at(s, p) == ' ');
  if (!is_not(s, signs, kNoSign)) return p;
  std::size_t end = run_without(s, signs, kNoSign);
  const auto in_tail = [&](char32_t c) {
    return (kRules.tail != Tail::nothing && is_newline(c)) || (kRules.tail == Tail::newlines_and_slashes && c == '/');
  };
  while (in_tail(code_at(s, end))) ++end;
  return end;
}

template <Llama3Rules kRules>
std::size_t match_llama3(const PieceView& s, std::size_t p) {
  if constexpr (kRules.words == Words::plain) {
    if (const std::size_t end = match_contraction(s, p, true); end > p) return end;
  }
  if (const std::size_t end = match_word<kRules>(s, p); end > p) return end;
  if (is(s, p, kNumber)) {
    std::size_t end = p + 1;
    while (end < p + kRules.max_numbers && is(s, end, kNumber)) ++end;
    return end;
  }
  if (const std::size_t end = match_signs<kRules>(s, p); end > p) return end;
  return match_lines_or_spaces(s, p);
}

constexpr Llama3Rules kLlama3{Words::plain, kLetter, 3, Tail::newlines};
constexpr Llama3Rules kQwen2{Words::plain, kLetter, 1, Tail::newlines};
constexpr Llama3Rules kQwen35{Words::plain, kLetter | kMark, 1, Tail::newlines};
constexpr Llama3Rules kTekken{Words::by_case, kLetter, 1, Tail::newlines_and_slashes};
constexpr Llama3Rules kGpt4o{Words::by_case_with_contraction, kLetter, 3, Tail::newlines_and_slashes};
constexpr Llama3Rules kSeedCoder{Words::plain, kLetter, 1, Tail::nothing};

std::size_t match_number(const PieceView& s, std::size_t p) {
  return p + is(s, p, kNumber);
}
std::size_t match_numbers(const PieceView& s, std::size_t p) {
  return run_of(s, p, kNumber);
}

std::size_t match_up_to_3_numbers(const PieceView& s, std::size_t p) {
  std::size_t end = p;
  while (end < p + 3 && is(s, end, kNumber)) ++end;
  return end;
}

std::size_t match_3_ascii_digits(const PieceView& s, std::size_t p) {
  const auto digit = [&](std::size_t i) { return code_at(s, i) >= '0' && code_at(s, i) <= '9'; };
  return digit(p) && digit(p + 1) && digit(p + 2) ? p + 3 : p;
}

template <bool kBackticks>
std::size_t match_signs_run(const PieceView& s, std::size_t p) {
  const auto sign = [&](std::size_t i) {
    switch (code_at(s, i)) {
      case '$':
      case '+':
      case '<':
      case '=':
      case '>':
      case '^':
      case '~':
      case '|':
        return true;
      case '`':
        return kBackticks;
      default:
        return is(s, i, kPunctuation);
    }
  };
  while (sign(p)) ++p;
  return p;
}

std::size_t match_newline(const PieceView& s, std::size_t p) {
  return p + is_newline(code_at(s, p));
}

template <CharClass kClass>
std::size_t match_spaced_run(const PieceView& s, std::size_t p) {
  const std::size_t run = p + is(s, p, kSpace);
  return is(s, run, kClass) ? run_of(s, run, kClass) : p;
}

}  // namespace

StepMatch find_gpt2(const PieceView& s, std::size_t pos) {
  return find<match_gpt2>(s, pos);
}
StepMatch find_llama3(const PieceView& s, std::size_t pos) {
  return find<match_llama3<kLlama3>>(s, pos);
}
StepMatch find_qwen2(const PieceView& s, std::size_t pos) {
  return find<match_llama3<kQwen2>>(s, pos);
}
StepMatch find_qwen35(const PieceView& s, std::size_t pos) {
  return find<match_llama3<kQwen35>>(s, pos);
}
StepMatch find_tekken(const PieceView& s, std::size_t pos) {
  return find<match_llama3<kTekken>>(s, pos);
}
StepMatch find_gpt4o(const PieceView& s, std::size_t pos) {
  return find<match_llama3<kGpt4o>>(s, pos);
}
StepMatch find_seed_coder(const PieceView& s, std::size_t pos) {
  return find<match_llama3<kSeedCoder>>(s, pos);
}

StepMatch find_number(const PieceView& s, std::size_t pos) {
  return find<match_number>(s, pos);
}
StepMatch find_numbers(const PieceView& s, std::size_t pos) {
  return find<match_numbers>(s, pos);
}
StepMatch find_up_to_3_numbers(const PieceView& s, std::size_t pos) {
  return find<match_up_to_3_numbers>(s, pos);
}
StepMatch find_3_ascii_digits(const PieceView& s, std::size_t pos) {
  return find<match_3_ascii_digits>(s, pos);
}
StepMatch find_signs(const PieceView& s, std::size_t pos) {
  return find<match_signs_run<false>>(s, pos);
}
StepMatch find_signs_or_backticks(const PieceView& s, std::size_t pos) {
  return find<match_signs_run<true>>(s, pos);
}
StepMatch find_newline(const PieceView& s, std::size_t pos) {
  return find<match_newline>(s, pos);
}
StepMatch find_letters(const PieceView& s, std::size_t pos) {
  return find<match_spaced_run<kLetter>>(s, pos);
}
StepMatch find_punctuation(const PieceView& s, std::size_t pos) {
  return find<match_spaced_run<kPunctuation>>(s, pos);
}

// Not by trying each position: that would be quadratic in a long run of spaces that something follows.
StepMatch find_trailing_spaces(const PieceView& s, std::size_t pos) {
  std::size_t begin = s.end;
  while (begin > pos && (s.classes[begin - 1] & kSpace) != 0) --begin;
  return {begin, s.end};
}

}  // namespace bankml
