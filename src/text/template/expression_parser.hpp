#pragma once
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/template/ast.hpp"
#include "text/template/lexer.hpp"

namespace bankml::jinja {

// Reads expressions from the tokens of a template by recursive descent (docs/chat-templates.md 3.4); the parser of
// statements builds on it. Syntax errors and nesting beyond limits.depth throw Error(invalid_request) with line and
// column.
class ExpressionParser {
 protected:
  ExpressionParser(std::string_view source, const Limits& limits) : limits_(limits), tokens_(tokenize(source)) {}

  // Counts the levels of recursion that stand on the stack.
  class Level {
   public:
    explicit Level(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.level_ > parser_.limits_.depth * kCallsPerLevel) parser_.fail_depth();
    }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    ExpressionParser& parser_;
  };

  // Tokens: at_... look, take_... consume what they find, expect_... fail where it isn't there.
  const Token& peek(std::size_t ahead = 0) const;
  Token& next();
  bool at_symbol(std::string_view text) const;
  bool at_word(std::string_view text) const;
  bool take_symbol(std::string_view text);
  bool take_word(std::string_view text);
  void expect_symbol(std::string_view text);
  void expect(TokenKind kind, std::string_view what);
  std::string expect_name();
  [[noreturn]] void fail(const std::string& what) const;
  [[noreturn]] void fail_depth() const;

  std::size_t slot(const std::string& name);  // of a variable: its index into names_

  ExpressionPtr expression();
  ExpressionPtr disjunction();  // an expression without "a if b else c"
  ExpressionPtr test();         // the operand of an arithmetic operator, with its filters and tests
  ExpressionPtr conditional(ExpressionPtr then, ExpressionPtr condition, ExpressionPtr otherwise);
  ExpressionPtr tuple_or_expression();
  ExpressionPtr target_list();  // what `set` assigns to
  Arguments arguments();

  std::vector<std::string> names_;

 private:
  static constexpr int kCallsPerLevel = 2;  // an expression level may pass two guarded functions

  template <class Node>
  ExpressionPtr make(Node node);
  template <class Parse>
  ExpressionPtr junction(std::string_view word, Parse operand);
  template <class Operand, class TakeOperator>
  ExpressionPtr chain(Operand operand, TakeOperator take);
  std::optional<Operator> take_operator(std::initializer_list<std::pair<std::string_view, Operator>> choices);
  ExpressionPtr conjunction();
  ExpressionPtr negation();
  ExpressionPtr comparison();
  ExpressionPtr sum();
  ExpressionPtr product();
  ExpressionPtr filter();
  ExpressionPtr unary();
  ExpressionPtr postfix();
  ExpressionPtr subscript(ExpressionPtr object);
  ExpressionPtr primary();
  ExpressionPtr name(const std::string& word);
  ExpressionPtr parenthesised();
  ExpressionPtr list();
  ExpressionPtr dict();
  ExpressionPtr rest_of_tuple(ExpressionPtr first);

  const Limits& limits_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0;
  std::unordered_map<std::string, std::size_t> slots_;
};

}  // namespace bankml::jinja
