#include "text/template/expression_parser.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <type_traits>

namespace bankml::jinja {

const Token& ExpressionParser::peek(std::size_t ahead) const {
  return tokens_[std::min(at_ + ahead, tokens_.size() - 1)];
}
Token& ExpressionParser::next() {
  return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_];
}
bool ExpressionParser::at_symbol(std::string_view text) const {
  return peek().kind == TokenKind::symbol && peek().text == text;
}
bool ExpressionParser::at_word(std::string_view text) const {
  return peek().kind == TokenKind::name && peek().text == text;
}
bool ExpressionParser::take_symbol(std::string_view text) {
  return at_symbol(text) && (next(), true);
}
bool ExpressionParser::take_word(std::string_view text) {
  return at_word(text) && (next(), true);
}

void ExpressionParser::expect_symbol(std::string_view text) {
  if (!take_symbol(text)) fail(fmt::format("expected '{}'", text));
}
void ExpressionParser::expect(TokenKind kind, std::string_view what) {
  if (peek().kind != kind) fail(fmt::format("expected {}", what));
  next();
}
std::string ExpressionParser::expect_name() {
  if (peek().kind != TokenKind::name) fail("expected a name");
  return next().text;
}
void ExpressionParser::fail(const std::string& what) const {
  static constexpr std::string_view kNames[] = {"text", "{{", "}}", "{%", "%}", "", "a string", "", "", "", "the end"};
  const Token& token = peek();
  const std::string_view name = kNames[static_cast<int>(token.kind)];
  fail_parse(token.line, token.column, fmt::format("{}, found {}", what, name.empty() ? "'" + token.text + "'" : name));
}
void ExpressionParser::fail_depth() const {
  fail_parse(peek().line, peek().column, fmt::format("nested deeper than {} levels", limits_.depth));
}

std::size_t ExpressionParser::slot(const std::string& name) {
  const auto [it, added] = slots_.try_emplace(name, names_.size());
  if (added) names_.push_back(name);
  return it->second;
}

template <class Node>
ExpressionPtr ExpressionParser::make(Node node) {
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

template <class Parse>
ExpressionPtr ExpressionParser::junction(std::string_view word, Parse operand) {
  ExpressionPtr first = operand();
  if (!at_word(word)) return first;
  Junction result{word == "or", {}};
  result.operands.push_back(std::move(first));
  while (take_word(word)) result.operands.push_back(operand());
  return make(std::move(result));
}

template <class Operand, class TakeOperator>
ExpressionPtr ExpressionParser::chain(Operand operand, TakeOperator take) {
  ExpressionPtr first = operand();
  std::optional<Operator> op = take();
  if (!op) return first;
  Chain result{std::move(first), {}};
  for (; op; op = take()) result.rest.emplace_back(*op, operand());
  return make(std::move(result));
}

// From the loosest binding to the tightest

ExpressionPtr ExpressionParser::expression() {
  const Level level(*this);
  ExpressionPtr value = disjunction();
  if (!take_word("if")) return value;
  ExpressionPtr condition = disjunction();
  ExpressionPtr otherwise = take_word("else") ? expression() : nullptr;
  return conditional(std::move(value), std::move(condition), std::move(otherwise));
}

ExpressionPtr ExpressionParser::disjunction() {
  return junction("or", [this] { return conjunction(); });
}
ExpressionPtr ExpressionParser::conjunction() {
  return junction("and", [this] { return negation(); });
}

ExpressionPtr ExpressionParser::conditional(ExpressionPtr then, ExpressionPtr condition, ExpressionPtr otherwise) {
  return make(Conditional{std::move(condition), std::move(then), std::move(otherwise)});
}

ExpressionPtr ExpressionParser::negation() {
  if (!take_word("not")) return comparison();
  const Level level(*this);
  return make(Negation{negation()});
}

ExpressionPtr ExpressionParser::comparison() {
  return chain([this] { return sum(); },
               [this]() -> std::optional<Operator> {
                 if (at_word("not") && peek(1).kind == TokenKind::name && peek(1).text == "in") {
                   next(), next();
                   return Operator::not_in;
                 }
                 if (take_word("in")) return Operator::in;
                 return take_operator({{"==", Operator::eq},
                                       {"!=", Operator::ne},
                                       {"<=", Operator::le},
                                       {">=", Operator::ge},
                                       {"<", Operator::lt},
                                       {">", Operator::gt}});
               });
}
ExpressionPtr ExpressionParser::sum() {
  return chain([this] { return product(); },
               [this] {
                 return take_operator({{"+", Operator::add}, {"-", Operator::subtract}, {"~", Operator::concat}});
               });
}
ExpressionPtr ExpressionParser::product() {
  return chain([this] { return test(); },
               [this] {
                 return take_operator({{"*", Operator::multiply}, {"/", Operator::divide}, {"%", Operator::modulo}});
               });
}

std::optional<Operator> ExpressionParser::take_operator(
    std::initializer_list<std::pair<std::string_view, Operator>> choices) {
  for (const auto& [text, op] : choices) {
    if (take_symbol(text)) return op;
  }
  return std::nullopt;
}

ExpressionPtr ExpressionParser::test() {
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

ExpressionPtr ExpressionParser::filter() {
  ExpressionPtr value = unary();  // "-x|abs" filters -x, unlike in Jinja2
  while (take_symbol("|")) {
    std::string name = expect_name();
    Arguments list;
    if (at_symbol("(")) list = arguments();
    value = make(Filter{std::move(value), std::move(name), std::move(list)});
  }
  return value;
}

ExpressionPtr ExpressionParser::unary() {
  if (!at_symbol("-") && !at_symbol("+")) return postfix();
  const Level level(*this);
  const bool negative = next().text == "-";
  return make(Sign{negative, unary()});
}

ExpressionPtr ExpressionParser::postfix() {
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

ExpressionPtr ExpressionParser::subscript(ExpressionPtr object) {
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

Arguments ExpressionParser::arguments() {
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

ExpressionPtr ExpressionParser::primary() {
  Token& token = next();
  switch (token.kind) {
    case TokenKind::integer:
      return make(Literal{Value(token.integer)});
    case TokenKind::floating:
      return make(Literal{Value(token.floating)});
    case TokenKind::string: {
      std::string text = std::move(token.text);
      while (peek().kind == TokenKind::string) text += next().text;
      return make(Literal{Value::literal(std::move(text))});
    }
    case TokenKind::name:
      return name(token.text);
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

ExpressionPtr ExpressionParser::name(const std::string& word) {
  if (word == "true" || word == "True") return make(Literal{Value(true)});
  if (word == "false" || word == "False") return make(Literal{Value(false)});
  if (word == "none" || word == "None") return make(Literal{Value(None{})});
  return make(Name{slot(word)});
}

ExpressionPtr ExpressionParser::parenthesised() {
  ExpressionPtr value = tuple_or_expression();
  expect_symbol(")");
  return value;
}

ExpressionPtr ExpressionParser::list() {
  ListLiteral result{{}, false};
  while (!at_symbol("]")) {
    result.items.push_back(expression());
    if (!take_symbol(",")) break;
  }
  expect_symbol("]");
  return make(std::move(result));
}

ExpressionPtr ExpressionParser::dict() {
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

ExpressionPtr ExpressionParser::target_list() {
  ExpressionPtr first = test();
  return at_symbol(",") ? rest_of_tuple(std::move(first)) : std::move(first);
}
ExpressionPtr ExpressionParser::tuple_or_expression() {
  ExpressionPtr first = expression();
  return at_symbol(",") ? rest_of_tuple(std::move(first)) : std::move(first);
}
ExpressionPtr ExpressionParser::rest_of_tuple(ExpressionPtr first) {
  ListLiteral tuple{{}, true};
  tuple.items.push_back(std::move(first));
  while (take_symbol(",")) tuple.items.push_back(expression());
  return make(std::move(tuple));
}

}  // namespace bankml::jinja
