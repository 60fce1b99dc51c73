#include "text/template/parser.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <unordered_map>

#include "text/template/lexer.hpp"

namespace bankml::jinja {
namespace {

class Parser {
 public:
  Parser(std::string_view source, const Limits& limits) : limits_(limits), tokens_(tokenize(source)) {}

  Program run() {
    program_.loop_slot = slot("loop");
    program_.caller_slot = slot("caller");
    program_.body = body({});
    return std::move(program_);
  }

 private:
  // Counts the levels of recursion that stand on the stack.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.level_ > parser_.limits_.depth * kCallsPerLevel) parser_.fail_depth();
    }
    ~Level() { --parser_.level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };
  static constexpr int kCallsPerLevel = 2;  // an expression level may pass two guarded functions

  // Tokens

  const Token& peek(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool at_symbol(std::string_view text) const { return peek().kind == TokenKind::symbol && peek().text == text; }
  bool at_word(std::string_view text) const { return peek().kind == TokenKind::name && peek().text == text; }
  bool take_symbol(std::string_view text) { return at_symbol(text) && (next(), true); }
  bool take_word(std::string_view text) { return at_word(text) && (next(), true); }

  void expect_symbol(std::string_view text) {
    if (!take_symbol(text)) fail(fmt::format("expected '{}'", text));
  }
  void expect(TokenKind kind, std::string_view what) {
    if (peek().kind != kind) fail(fmt::format("expected {}", what));
    next();
  }
  std::string expect_name() {
    if (peek().kind != TokenKind::name) fail("expected a name");
    return next().text;
  }
  void close_block() { expect(TokenKind::close_block, "%}"); }

  [[noreturn]] void fail(const std::string& what) const {
    static constexpr std::string_view kNames[] = {"text", "{{", "}}", "{%", "%}", "", "a string", "", "", "", "the end"};
    const Token& token = peek();
    const std::string_view name = kNames[static_cast<int>(token.kind)];
    fail_parse(token.line, token.column, fmt::format("{}, found {}", what, name.empty() ? "'" + token.text + "'" : name));
  }
  [[noreturn]] void fail_depth() const {
    fail_parse(peek().line, peek().column, fmt::format("nested deeper than {} levels", limits_.depth));
  }

  std::size_t slot(const std::string& name) {
    const auto [it, added] = slots_.try_emplace(name, program_.names.size());
    if (added) program_.names.push_back(name);
    return it->second;
  }

  // Statements

  // Up to a block tag that starts with one of `ends`, whose word is taken and kept in `ended_by_`. No ends: up to the end.
  Body body(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Body statements;
    for (;;) {
      const int line = peek().line;
      switch (peek().kind) {
        case TokenKind::end:
          if (ends.size() != 0) fail(fmt::format("expected {{% {} %}}", *(ends.end() - 1)));
          return statements;
        case TokenKind::text: statements.push_back({Output{next().text, nullptr}, line}); break;
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

  ExpressionPtr target_list() {
    ExpressionPtr first = test();
    return at_symbol(",") ? rest_of_tuple(std::move(first)) : std::move(first);
  }
  ExpressionPtr tuple_or_expression() {
    ExpressionPtr first = expression();
    return at_symbol(",") ? rest_of_tuple(std::move(first)) : std::move(first);
  }
  ExpressionPtr rest_of_tuple(ExpressionPtr first) {
    ListLiteral tuple{{}, true};
    tuple.items.push_back(std::move(first));
    while (take_symbol(",")) tuple.items.push_back(expression());
    return make(std::move(tuple));
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
        result.iterable = make(Conditional{std::move(condition), std::move(result.iterable), expression()});
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

  // Expressions, from the loosest binding to the tightest

  template <class Node>
  ExpressionPtr make(Node node) {
    int depth = 0;
    const auto visit = [&](const ExpressionPtr& child) {
      if (child) depth = std::max(depth, child->depth);
    };
    const auto visit_all = [&](const Arguments& list) {
      for (const auto& argument : list.positional) visit(argument.value);
      for (const auto& argument : list.named) visit(argument.second);
    };
    if constexpr (requires { node.operand; }) visit(node.operand);
    if constexpr (requires { node.object; }) visit(node.object);
    if constexpr (requires { node.arguments; }) visit_all(node.arguments);
    if constexpr (requires { node.operands; }) std::for_each(node.operands.begin(), node.operands.end(), visit);
    if constexpr (requires { node.items; }) std::for_each(node.items.begin(), node.items.end(), visit);
    if constexpr (std::is_same_v<Node, Subscript>) visit(node.index);
    if constexpr (std::is_same_v<Node, CallExpression>) visit(node.callee);
    if constexpr (std::is_same_v<Node, Slice>) visit(node.start), visit(node.stop), visit(node.step);
    if constexpr (std::is_same_v<Node, Conditional>) visit(node.condition), visit(node.then), visit(node.otherwise);
    if constexpr (std::is_same_v<Node, Chain>) {
      visit(node.first);
      for (const auto& link : node.rest) visit(link.second);
    }
    if constexpr (std::is_same_v<Node, DictLiteral>) {
      for (const auto& entry : node.entries) visit(entry.first), visit(entry.second);
    }
    if (++depth > limits_.depth) fail_depth();
    return std::make_unique<const Expression>(Expression{std::move(node), depth});
  }

  ExpressionPtr expression() {
    const Level level(*this);
    ExpressionPtr value = disjunction();
    if (!take_word("if")) return value;
    ExpressionPtr condition = disjunction();
    ExpressionPtr otherwise = take_word("else") ? expression() : nullptr;
    return make(Conditional{std::move(condition), std::move(value), std::move(otherwise)});
  }

  ExpressionPtr disjunction() { return junction("or", [this] { return conjunction(); }); }
  ExpressionPtr conjunction() { return junction("and", [this] { return negation(); }); }

  template <class Parse>
  ExpressionPtr junction(std::string_view word, Parse operand) {
    ExpressionPtr first = operand();
    if (!at_word(word)) return first;
    Junction result{word == "or", {}};
    result.operands.push_back(std::move(first));
    while (take_word(word)) result.operands.push_back(operand());
    return make(std::move(result));
  }

  ExpressionPtr negation() {
    if (!take_word("not")) return comparison();
    const Level level(*this);
    return make(Negation{negation()});
  }

  ExpressionPtr comparison() {
    return chain([this] { return sum(); }, [this]() -> std::optional<Operator> {
      if (at_word("not") && peek(1).kind == TokenKind::name && peek(1).text == "in") {
        next(), next();
        return Operator::not_in;
      }
      if (take_word("in")) return Operator::in;
      return take_operator({{"==", Operator::eq}, {"!=", Operator::ne}, {"<=", Operator::le}, {">=", Operator::ge},
                            {"<", Operator::lt}, {">", Operator::gt}});
    });
  }
  ExpressionPtr sum() {
    return chain([this] { return product(); }, [this] {
      return take_operator({{"+", Operator::add}, {"-", Operator::subtract}, {"~", Operator::concat}});
    });
  }
  ExpressionPtr product() {
    return chain([this] { return test(); }, [this] {
      return take_operator({{"*", Operator::multiply}, {"/", Operator::divide}, {"%", Operator::modulo}});
    });
  }

  std::optional<Operator> take_operator(std::initializer_list<std::pair<std::string_view, Operator>> choices) {
    for (const auto& [text, op] : choices) {
      if (take_symbol(text)) return op;
    }
    return std::nullopt;
  }

  template <class Operand, class TakeOperator>
  ExpressionPtr chain(Operand operand, TakeOperator take) {
    ExpressionPtr first = operand();
    std::optional<Operator> op = take();
    if (!op) return first;
    Chain result{std::move(first), {}};
    for (; op; op = take()) result.rest.emplace_back(*op, operand());
    return make(std::move(result));
  }

  ExpressionPtr test() {
    ExpressionPtr value = filter();
    while (take_word("is")) {
      const bool negated = take_word("not");
      std::string name = expect_name();
      Arguments list;
      if (at_symbol("(")) list = arguments();
      value = make(Test{std::move(value), std::move(name), std::move(list), negated});
    }
    return value;
  }

  ExpressionPtr filter() {
    ExpressionPtr value = unary();  // "-x|abs" filters -x, unlike in Jinja2
    while (take_symbol("|")) {
      std::string name = expect_name();
      Arguments list;
      if (at_symbol("(")) list = arguments();
      value = make(Filter{std::move(value), std::move(name), std::move(list)});
    }
    return value;
  }

  ExpressionPtr unary() {
    if (!at_symbol("-") && !at_symbol("+")) return postfix();
    const Level level(*this);
    const bool negative = next().text == "-";
    return make(Sign{negative, unary()});
  }

  ExpressionPtr postfix() {
    ExpressionPtr value = primary();
    for (;;) {
      if (take_symbol(".")) {
        if (peek().kind == TokenKind::integer) {
          value = make(Subscript{std::move(value), make(Literal{Value(next().integer)})});
        } else {
          value = make(Member{std::move(value), expect_name()});
        }
      } else if (take_symbol("[")) {
        value = subscript(std::move(value));
      } else if (at_symbol("(")) {
        Arguments list = arguments();
        value = make(CallExpression{std::move(value), std::move(list)});
      } else {
        return value;
      }
    }
  }

  ExpressionPtr subscript(ExpressionPtr object) {
    const auto part = [this]() -> ExpressionPtr { return at_symbol(":") || at_symbol("]") ? nullptr : expression(); };
    ExpressionPtr start = part();
    if (!take_symbol(":")) {
      if (!start) fail("expected a subscript");
      expect_symbol("]");
      return make(Subscript{std::move(object), std::move(start)});
    }
    ExpressionPtr stop = part();
    ExpressionPtr step = take_symbol(":") ? part() : nullptr;
    expect_symbol("]");
    return make(Slice{std::move(object), std::move(start), std::move(stop), std::move(step)});
  }

  Arguments arguments() {
    Arguments result;
    expect_symbol("(");
    while (!at_symbol(")")) {
      if (peek().kind == TokenKind::name && peek(1).kind == TokenKind::symbol && peek(1).text == "=") {
        std::string name = next().text;
        next();
        result.named.emplace_back(std::move(name), expression());
      } else {
        const bool spread = take_symbol("*");
        result.positional.push_back({expression(), spread});
      }
      if (!take_symbol(",")) break;
    }
    expect_symbol(")");
    return result;
  }

  ExpressionPtr primary() {
    Token& token = next();
    switch (token.kind) {
      case TokenKind::integer: return make(Literal{Value(token.integer)});
      case TokenKind::floating: return make(Literal{Value(token.floating)});
      case TokenKind::string: {
        std::string text = std::move(token.text);
        while (peek().kind == TokenKind::string) text += next().text;
        return make(Literal{Value::literal(std::move(text))});
      }
      case TokenKind::name: return name(token.text);
      case TokenKind::symbol:
        if (token.text == "(") return parenthesised();
        if (token.text == "[") return list();
        if (token.text == "{") return dict();
        [[fallthrough]];
      default:
        if (token.kind != TokenKind::end) --at_;
        fail("expected an expression");
    }
  }

  ExpressionPtr name(const std::string& word) {
    if (word == "true" || word == "True") return make(Literal{Value(true)});
    if (word == "false" || word == "False") return make(Literal{Value(false)});
    if (word == "none" || word == "None") return make(Literal{Value(None{})});
    return make(Name{slot(word)});
  }

  ExpressionPtr parenthesised() {
    ExpressionPtr value = tuple_or_expression();
    expect_symbol(")");
    return value;
  }

  ExpressionPtr list() {
    ListLiteral result{{}, false};
    while (!at_symbol("]")) {
      result.items.push_back(expression());
      if (!take_symbol(",")) break;
    }
    expect_symbol("]");
    return make(std::move(result));
  }

  ExpressionPtr dict() {
    DictLiteral result;
    while (!at_symbol("}")) {
      ExpressionPtr key = expression();
      expect_symbol(":");
      result.entries.emplace_back(std::move(key), expression());
      if (!take_symbol(",")) break;
    }
    expect_symbol("}");
    return make(std::move(result));
  }

  const Limits& limits_;
  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  int level_ = 0;
  std::string ended_by_;
  Program program_;
  std::unordered_map<std::string, std::size_t> slots_;
};

}  // namespace

Program parse(std::string_view source, const Limits& limits) { return Parser(source, limits).run(); }

}  // namespace bankml::jinja
