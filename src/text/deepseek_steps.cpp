// Expressions of the deepseek family: classes spelled out as ranges of code points.
#include <algorithm>
#include <iterator>
#include <string_view>

#include "text/piece_scan.hpp"
#include "text/pre_tokenizer_steps.hpp"

namespace bankml {
namespace {

using namespace scan;

struct Range {
  char32_t first, last;
};

constexpr Range kCased[] = {
    {0x41, 0x5A},       {0x61, 0x7A},       {0xB5, 0xB5},       {0xC0, 0xD6},       {0xD8, 0xF6},
    {0xF8, 0x1BA},      {0x1BC, 0x1BF},     {0x1C4, 0x293},     {0x295, 0x2AF},     {0x370, 0x373},
    {0x376, 0x377},     {0x37B, 0x37D},     {0x37F, 0x37F},     {0x386, 0x386},     {0x388, 0x38A},
    {0x38C, 0x38C},     {0x38E, 0x3A1},     {0x3A3, 0x3F5},     {0x3F7, 0x481},     {0x48A, 0x52F},
    {0x531, 0x556},     {0x10A0, 0x10C5},   {0x13A0, 0x13F5},   {0x13F8, 0x13FD},   {0x1C90, 0x1CBA},
    {0x1CBD, 0x1CBF},   {0x1D00, 0x1D2B},   {0x1D6B, 0x1D77},   {0x1D79, 0x1D9A},   {0x1E00, 0x1F15},
    {0x1F18, 0x1F1D},   {0x1F20, 0x1F45},   {0x1F48, 0x1F4D},   {0x1F50, 0x1F57},   {0x1F59, 0x1F59},
    {0x1F5B, 0x1F5B},   {0x1F5D, 0x1F5D},   {0x1F5F, 0x1F7D},   {0x1F80, 0x1FB4},   {0x1FB6, 0x1FBC},
    {0x1FBE, 0x1FBE},   {0x1FC2, 0x1FC4},   {0x1FC6, 0x1FCC},   {0x1FD0, 0x1FD3},   {0x1FD6, 0x1FDB},
    {0x1FE0, 0x1FEC},   {0x1FF2, 0x1FF4},   {0x1FF6, 0x1FFC},   {0x2102, 0x2102},   {0x2107, 0x2107},
    {0x210A, 0x2113},   {0x2115, 0x2115},   {0x2119, 0x211D},   {0x2124, 0x2124},   {0x2126, 0x2126},
    {0x2128, 0x2128},   {0x212A, 0x212D},   {0x212F, 0x2134},   {0x2139, 0x2139},   {0x213C, 0x213F},
    {0x2145, 0x2149},   {0x214E, 0x214E},   {0x2183, 0x2184},   {0x2C00, 0x2C7B},   {0x2C7E, 0x2CE4},
    {0x2CEB, 0x2CEE},   {0x2CF2, 0x2CF3},   {0xA640, 0xA66D},   {0xA680, 0xA69B},   {0xA722, 0xA76F},
    {0xA771, 0xA787},   {0xA78B, 0xA78E},   {0xAB70, 0xABBF},   {0xFB00, 0xFB06},   {0xFB13, 0xFB17},
    {0xFF21, 0xFF3A},   {0xFF41, 0xFF5A},   {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB},
    {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2}, {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};
// The publishers' own classes, which hold more than their names say: U+003A-007E has the ASCII letters in it.
constexpr Range kPunctuationRanges[] = {{0x21, 0x2F},     {0x3A, 0x7E},     {0x2018, 0x201F},
                                        {0x3000, 0x3002}, {0xFF01, 0xFF0F}, {0xFF1A, 0xFF5E}};
constexpr Range kHan[] = {{0x800, 0x9FA5}, {0xAC00, 0xD7FF}};  // U+4E00-9FA5, U+0800-4E00, U+AC00-D7FF
constexpr Range kCjk[] = {{0x3040, 0x30FF}, {0x4E00, 0x9FA5}};

// White space beyond ASCII is in none of the ranges: the peer turns it into a vertical tab before it looks
// (section 3.3).
template <const auto& kRanges>
std::size_t run_in(const PieceView& s, std::size_t p) {
  const auto in_ranges = [&](char32_t c) {
    const auto* after = std::upper_bound(std::begin(kRanges), std::end(kRanges), c,
                                         [](char32_t code, const Range& range) { return code < range.first; });
    return after != std::begin(kRanges) && c <= std::prev(after)->last;
  };
  while (is_not(s, p, kSpace) && in_ranges(s.code[p])) ++p;
  return p;
}

template <const auto& kRanges>
std::size_t spaced_run_in(const PieceView& s, std::size_t p) {
  const std::size_t run = p + is(s, p, kSpace);
  const std::size_t end = run_in<kRanges>(s, run);
  return end > run ? end : p;
}

bool is_ascii_sign(char32_t c) {
  return (c >= 0x21 && c <= 0x2F) || (c >= 0x3A && c <= 0x40) || (c >= 0x5B && c <= 0x60) || (c >= 0x7B && c <= 0x7E);
}

// [ASCII signs][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+
std::size_t match_deepseek3(const PieceView& s, std::size_t p) {
  if (is_ascii_sign(code_at(s, p)) && is_ascii_letter(code_at(s, p + 1))) {
    std::size_t end = p + 2;
    while (is_ascii_letter(code_at(s, end))) ++end;
    return end;
  }
  constexpr CharClass kWord = kLetter | kMark, kSign = kPunctuation | kSymbol;
  const bool leads = is_not(s, p, kLetter | kSign) && !is_newline(s.code[p]);
  const std::size_t word = p + (leads && is(s, p + 1, kWord));
  if (is(s, word, kWord)) return run_of(s, word, kWord);
  const std::size_t signs = p + (code_at(s, p) == ' ');
  if (is(s, signs, kSign)) {
    std::size_t end = run_of(s, signs, kSign);
    while (is_newline(code_at(s, end))) ++end;
    return end;
  }
  return match_lines_or_spaces(s, p);
}

}  // namespace

StepMatch find_deepseek_cased(const PieceView& s, std::size_t pos) {
  return find<spaced_run_in<kCased>>(s, pos);
}
StepMatch find_deepseek_punctuation(const PieceView& s, std::size_t pos) {
  return find<spaced_run_in<kPunctuationRanges>>(s, pos);
}
StepMatch find_deepseek_han(const PieceView& s, std::size_t pos) {
  return find<run_in<kHan>>(s, pos);
}
StepMatch find_deepseek3_cjk(const PieceView& s, std::size_t pos) {
  return find<run_in<kCjk>>(s, pos);
}
StepMatch find_deepseek3(const PieceView& s, std::size_t pos) {
  return find<match_deepseek3>(s, pos);
}

}  // namespace bankml
