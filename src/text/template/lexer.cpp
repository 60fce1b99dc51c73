#include "text/template/lexer.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "bankml/base/error.hpp"

namespace bankml::jinja {
namespace {

constexpr std::string_view kDashStrips = " \t\r\n";
constexpr std::string_view kLineBlanks = " \t\r\v\f";  // what lstrip_blocks takes: white space within a line

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

// CRLF becomes LF and one newline at the very end is dropped.
std::string normalized(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r' && i + 1 < source.size() && source[i + 1] == '\n') continue;
    text += source[i];
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalized(source)) {}

  std::vector<Token> run() {
    for (;;) {
      const std::size_t tag = find_tag();
      emit_text(tag);
      if (tag == std::string::npos) break;
      pos_ = tag + 2;
      if (pos_ < source_.size() && source_[pos_] == '-') ++pos_;
      switch (source_[tag + 1]) {
        case '#':
          skip_comment(tag);
          break;
        case '{':
          lex_tag(tag, TokenKind::open_output, TokenKind::close_output, "}}");
          break;
        default:
          lex_tag(tag, TokenKind::open_block, TokenKind::close_block, "%}");
          break;
      }
    }
    pos_ = source_.size();
    push(TokenKind::end);
    return std::move(tokens_);
  }

 private:
  std::size_t find_tag() const {
    for (std::size_t at = source_.find('{', pos_); at != std::string::npos; at = source_.find('{', at + 1)) {
      if (at + 1 < source_.size() && (source_[at + 1] == '{' || source_[at + 1] == '%' || source_[at + 1] == '#'))
        return at;
    }
    return std::string::npos;
  }

  // The text from pos_ to `tag` (npos: to the end), less what the tags around it strip.
  void emit_text(std::size_t tag) {
    std::size_t begin = pos_, end = std::min(tag, source_.size());
    if (strip_after_tag_) {
      begin = std::min(source_.find_first_not_of(kDashStrips, begin), end);
    } else if (trim_newline_ && begin < end && source_[begin] == '\n') {
      ++begin;
    }
    if (tag != std::string::npos) {
      const bool dash = tag + 2 < source_.size() && source_[tag + 2] == '-';
      if (dash) {
        while (end > begin && kDashStrips.find(source_[end - 1]) != std::string_view::npos) --end;
      } else if (source_[tag + 1] != '{') {
        end = std::max(begin, strip_indentation(end));
      }
    }
    if (end > begin) push(TokenKind::text, source_.substr(begin, end - begin));
    strip_after_tag_ = trim_newline_ = false;
  }

  // lstrip_blocks: where the blanks before `end` start, if nothing else stands before them on the line.
  std::size_t strip_indentation(std::size_t end) const {
    std::size_t start = end;
    while (start > 0 && kLineBlanks.find(source_[start - 1]) != std::string_view::npos) --start;
    return start == 0 || source_[start - 1] == '\n' ? start : end;
  }

  void skip_comment(std::size_t tag) {
    // pos_ may stand behind the dash of {#-, which a comment like {#-#} also closes with.
    const std::size_t close = source_.find("#}", tag + 2);
    if (close == std::string::npos) fail_at(tag, "the comment has no end");
    strip_after_tag_ = close > tag + 2 && source_[close - 1] == '-';
    trim_newline_ = true;
    pos_ = close + 2;
  }

  void lex_tag(std::size_t tag, TokenKind open, TokenKind close_kind, std::string_view close) {
    const std::size_t inside = std::exchange(pos_, tag);
    push(open);
    pos_ = inside;
    int braces = 0;  // a "}}" that closes dicts is no end of the tag
    for (;;) {
      pos_ = std::min(source_.find_first_not_of(" \t\r\n\v\f", pos_), source_.size());
      if (pos_ == source_.size()) fail_at(tag, fmt::format("the tag has no {}", close));
      const std::string_view rest = std::string_view(source_).substr(pos_);
      const bool dash = rest.starts_with('-') && rest.substr(1).starts_with(close);
      if (dash || (rest.starts_with(close) && (braces == 0 || close != "}}"))) {
        push(close_kind);
        pos_ += close.size() + (dash ? 1 : 0);
        strip_after_tag_ = dash;
        trim_newline_ = close_kind == TokenKind::close_block;
        return;
      }
      if (rest.front() == '{') ++braces;
      if (rest.front() == '}') --braces;
      lex_token(rest);
    }
  }

  void lex_token(std::string_view rest) {
    const char c = rest.front();
    if (c == '\'' || c == '"') return lex_string();
    if (is_digit(c)) return lex_number(rest);
    if (starts_name(c)) {
      const auto end = std::find_if(rest.begin(), rest.end(), [](char x) { return !starts_name(x) && !is_digit(x); });
      return take(TokenKind::name, static_cast<std::size_t>(end - rest.begin()));
    }
    static constexpr std::array<std::string_view, 4> kPairs{"==", "!=", "<=", ">="};
    if (std::find(kPairs.begin(), kPairs.end(), rest.substr(0, 2)) != kPairs.end()) return take(TokenKind::symbol, 2);
    if (std::string_view("()[]{}.,:|=+-*/%~<>").find(c) == std::string_view::npos) {
      fail_at(pos_, fmt::format("unexpected character '{}'", c));
    }
    take(TokenKind::symbol, 1);
  }

  void lex_number(std::string_view rest) {
    std::size_t length = rest.find_first_not_of("0123456789");
    length = std::min(length, rest.size());
    const bool fraction = length + 1 < rest.size() && rest[length] == '.' && is_digit(rest[length + 1]);
    if (fraction) {
      length = std::min(rest.find_first_not_of("0123456789", length + 1), rest.size());
      push(TokenKind::floating, std::string(rest.substr(0, length)));
      tokens_.back().floating = std::strtod(tokens_.back().text.c_str(), nullptr);
    } else {
      push(TokenKind::integer, std::string(rest.substr(0, length)));
      const auto [end, error] = std::from_chars(rest.data(), rest.data() + length, tokens_.back().integer);
      if (error != std::errc()) fail_at(pos_, "the number does not fit into 64 bits");
    }
    pos_ += length;
  }

  void lex_string() {
    const std::size_t start = pos_;
    const char quote = source_[pos_];
    std::string text;
    for (std::size_t i = pos_ + 1; i < source_.size(); ++i) {
      if (source_[i] == quote) {
        push(TokenKind::string, std::move(text));
        pos_ = i + 1;
        return;
      }
      if (source_[i] != '\\') {
        text += source_[i];
        continue;
      }
      if (++i == source_.size()) break;
      static constexpr std::string_view kEscapes = "ntrbfv\\'\"", kMeanings = "\n\t\r\b\f\v\\'\"";
      const std::size_t which = kEscapes.find(source_[i]);
      if (which == std::string_view::npos) fail_at(i, fmt::format("unknown escape \\{}", source_[i]));
      text += kMeanings[which];
    }
    fail_at(start, "the string has no end");
  }

  void take(TokenKind kind, std::size_t length) {
    push(kind, source_.substr(pos_, length));
    pos_ += length;
  }

  void push(TokenKind kind, std::string text = {}) {
    advance_position(pos_);
    tokens_.push_back({kind, std::move(text), 0, 0, line_, column_});
  }

  // Line and column of `at`, counted onwards from where they were last asked for.
  void advance_position(std::size_t at) {
    for (; counted_ < at; ++counted_) {
      if (source_[counted_] == '\n') {
        ++line_;
        column_ = 1;
      } else {
        ++column_;
      }
    }
  }

  [[noreturn]] void fail_at(std::size_t at, const std::string& what) {
    advance_position(at);
    fail_parse(line_, column_, what);
  }

  const std::string source_;
  std::vector<Token> tokens_;
  std::size_t pos_ = 0, counted_ = 0;
  int line_ = 1, column_ = 1;
  bool strip_after_tag_ = false;  // the tag before ended with a dash
  bool trim_newline_ = false;     // the tag before was a block or a comment
};

}  // namespace

std::vector<Token> tokenize(std::string_view source) {
  return Lexer(source).run();
}

void fail_parse(int line, int column, const std::string& what) {
  throw Error(ErrorKind::invalid_request, fmt::format("chat template, line {}, column {}: {}", line, column, what));
}

}  // namespace bankml::jinja
