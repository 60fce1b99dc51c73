#pragma once
// Template source to tokens, with the white-space rules of trim_blocks and lstrip_blocks applied
// (docs/chat-templates.md 3.2).
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bankml::jinja {

enum class TokenKind {
  text,          // outside of tags; never empty
  open_output,   // {{
  close_output,  // }}
  open_block,    // {%
  close_block,   // %}
  name,
  string,
  integer,
  floating,
  symbol,  // an operator or bracket, in `text`
  end,
};

struct Token {
  TokenKind kind;
  std::string text;  // without quotes and escapes for strings
  std::int64_t integer = 0;
  double floating = 0;
  int line = 1, column = 1;
};

// Throws Error(invalid_request) with line and column. The last token is `end`.
std::vector<Token> tokenize(std::string_view source);

// "line 3, column 7: ..." as an Error(invalid_request) of a template that can't be parsed.
[[noreturn]] void fail_parse(int line, int column, const std::string& what);

}  // namespace bankml::jinja
