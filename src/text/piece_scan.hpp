#pragma once
// What the expressions of pre-tokenizers are made of.
#include <cstddef>

#include "text/pre_tokenizer_steps.hpp"

namespace bankml::scan {

constexpr char32_t kNothing = 0xFFFFFFFF;  // beyond the end of the piece: equal to no character

inline char32_t code_at(const PieceView& s, std::size_t p) {
  return p < s.end ? s.code[p] : kNothing;
}

// Is there a character at p, and is it one of / none of the classes?
inline bool is(const PieceView& s, std::size_t p, CharClass classes) {
  return p < s.end && (s.classes[p] & classes) != 0;
}
inline bool is_not(const PieceView& s, std::size_t p, CharClass classes) {
  return p < s.end && (s.classes[p] & classes) == 0;
}

// The end of the run that begins at p (p itself if there is none).
inline std::size_t run_of(const PieceView& s, std::size_t p, CharClass classes) {
  while (is(s, p, classes)) ++p;
  return p;
}
inline std::size_t run_without(const PieceView& s, std::size_t p, CharClass classes) {
  while (is_not(s, p, classes)) ++p;
  return p;
}

inline bool is_newline(char32_t c) {
  return c == '\r' || c == '\n';
}
inline bool is_ascii_lower(char32_t c) {
  return c >= 'a' && c <= 'z';
}
inline bool is_ascii_upper(char32_t c) {
  return c >= 'A' && c <= 'Z';
}
inline bool is_ascii_letter(char32_t c) {
  return is_ascii_lower(c) || is_ascii_upper(c);
}

// Makes a step of a function that gives the end of the match that begins at p, or p if none does.
template <auto kMatchAt>
StepMatch find(const PieceView& s, std::size_t pos) {
  for (; pos < s.end; ++pos) {
    if (const std::size_t end = kMatchAt(s, pos); end > pos) return {pos, end};
  }
  return {s.end, s.end};
}

// 's|'t|'re|'ve|'m|'ll|'d with U+0027; in either case if asked for (ASCII only: U+017F is no s).
inline std::size_t match_contraction(const PieceView& s, std::size_t p, bool any_case) {
  if (code_at(s, p) != '\'') return p;
  const auto letter = [&](std::size_t i) {
    const char32_t c = code_at(s, i);
    return any_case && is_ascii_upper(c) ? c + ('a' - 'A') : c;
  };
  const char32_t a = letter(p + 1), b = letter(p + 2);
  if (a == 's' || a == 't' || a == 'm' || a == 'd') return p + 2;
  if ((a == 'r' && b == 'e') || (a == 'v' && b == 'e') || (a == 'l' && b == 'l')) return p + 3;
  return p;
}

// \s+(?!\S)|\s+ : white space, less the last one if something follows.
inline std::size_t match_spaces(const PieceView& s, std::size_t p) {
  const std::size_t end = run_of(s, p, kSpace);
  return end < s.end && end - p > 1 ? end - 1 : end;
}

// \s*[\r\n]+|\s+(?!\S)|\s+ : white space up to its last newline, if it has one.
inline std::size_t match_lines_or_spaces(const PieceView& s, std::size_t p) {
  for (std::size_t end = run_of(s, p, kSpace); end > p; --end) {
    if (is_newline(s.code[end - 1])) return end;
  }
  return match_spaces(s, p);
}

}  // namespace bankml::scan
