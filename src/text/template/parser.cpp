#include "text/template/parser.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "bankml/base/error.hpp"
#include "text/template/expression_parser.hpp"

namespace bankml::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  Parser(std::string_view source, const Limits& limits) : ExpressionParser(source, limits) {}

  Program run() {
    Program program;
    program.loop_slot = slot("loop");
    program.caller_slot = slot("caller");
    program.body = body({});
    program.names = std::move(names_);
    return program;
  }

 private:
  void close_block() { expect(TokenKind::close_block, "%}"); }

  // Up to a block tag that starts with one of `ends`, whose word is taken and kept in `ended_by_`. No ends: up to the
  // end.
  Body body(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Body statements;
    for (;;) {
      const int line = peek().line;
      switch (peek().kind) {
        case TokenKind::end:
          if (ends.size() != 0) fail(fmt::format("expected {{% {} %}}", *(ends.end() - 1)));
          return statements;
        case TokenKind::text:
          statements.push_back({Output{next().text, nullptr}, line});
          break;
        case TokenKind::open_output: {
          next();
          Output output{{}, expression()};
          expect(TokenKind::close_output, "}}");
          statements.push_back({std::move(output), line});
          break;
        }
        default:
          expect(TokenKind::open_block, "text or a tag");
          if (std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return at_word(end); })) {
            ended_by_ = next().text;
            return statements;
          }
          block(statements, line);
      }
    }
  }

  void block(Body& out, int line) {
    const Token& at = peek();
    const std::string word = expect_name();
    if (word == "set") return out.push_back({set(), line});
    if (word == "if") return out.push_back({if_block(), line});
    if (word == "for") return out.push_back({for_block(), line});
    if (word == "macro") return out.push_back({macro(), line});
    if (word == "call") return out.push_back({call_block(), line});
    if (word == "filter") return out.push_back({filter_block(), line});
    if (word == "break" || word == "continue") {
      close_block();
      if (word == "break") return out.push_back({Break{}, line});
      return out.push_back({Continue{}, line});
    }
    if (word == "generation") {  // marks the trained-on part of a conversation; renders as its body
      close_block();
      for (Statement& statement : body({"endgeneration"})) out.push_back(std::move(statement));
      return close_block();
    }
    fail_parse(at.line, at.column, fmt::format("unknown statement '{}'", word));
  }

  Set set() {
    ExpressionPtr target = target_list();
    if (take_symbol("=")) {
      Set result{std::move(target), tuple_or_expression(), {}};
      close_block();
      return result;
    }
    close_block();
    Set result{std::move(target), nullptr, body({"endset"})};
    close_block();
    return result;
  }

  If if_block() {
    If result;
    ended_by_ = "elif";
    while (ended_by_ == "elif") {
      ExpressionPtr condition = expression();
      close_block();
      Body branch = body({"elif", "else", "endif"});
      result.branches.push_back({std::move(condition), std::move(branch)});
    }
    if (ended_by_ == "else") {
      close_block();
      result.otherwise = body({"endif"});
    }
    close_block();
    return result;
  }

  For for_block() {
    For result;
    const bool parenthesised = take_symbol("(");
    do result.targets.push_back(slot(expect_name()));
    while (take_symbol(","));
    if (parenthesised) expect_symbol(")");
    if (!take_word("in")) fail("expected 'in'");
    result.iterable = disjunction();
    if (take_word("if")) {
      ExpressionPtr condition = disjunction();
      if (take_word("else")) {  // "a if c else b" is what the loop runs over; a lone "if c" filters it
        result.iterable = conditional(std::move(result.iterable), std::move(condition), expression());
      } else {
        result.condition = std::move(condition);
      }
    }
    close_block();
    result.body = body({"else", "endfor"});
    if (ended_by_ == "else") {
      close_block();
      result.otherwise = body({"endfor"});
    }
    close_block();
    return result;
  }

  std::vector<Parameter> parameters() {
    std::vector<Parameter> result;
    expect_symbol("(");
    while (!at_symbol(")")) {
      std::string name = expect_name();
      ExpressionPtr fallback = take_symbol("=") ? expression() : nullptr;
      const std::size_t variable = slot(name);
      result.push_back({variable, std::move(name), std::move(fallback)});
      if (!take_symbol(",")) break;
    }
    expect_symbol(")");
    return result;
  }

  Macro macro() {
    Macro result;
    result.name = expect_name();
    result.slot = slot(result.name);
    result.parameters = parameters();
    close_block();
    result.body = body({"endmacro"});
    close_block();
    return result;
  }

  CallBlock call_block() {
    CallBlock result;
    if (at_symbol("(")) result.parameters = parameters();
    result.call = test();
    if (!std::holds_alternative<CallExpression>(result.call->node)) fail("expected a call");
    close_block();
    result.body = body({"endcall"});
    close_block();
    return result;
  }

  FilterBlock filter_block() {
    FilterBlock result;
    result.name = expect_name();
    if (at_symbol("(")) result.arguments = arguments();
    close_block();
    result.body = body({"endfilter"});
    close_block();
    return result;
  }

  std::string ended_by_;
};

}  // namespace

Program parse(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("chat template: expected at most {} bytes, found {}", limits.source, source.size()));
  }
  return Parser(source, limits).run();
}

}  // namespace bankml::jinja
