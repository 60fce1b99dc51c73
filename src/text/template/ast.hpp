#pragma once
// A compiled template: what the parser makes and the interpreter walks. Immutable, so any number of threads may render
// it at once.
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "text/template/value.hpp"

namespace bankml::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<const Expression>;
struct Statement;
using Body = std::vector<Statement>;

enum class Operator { add, concat, subtract, multiply, divide, modulo, eq, ne, lt, gt, le, ge, in, not_in };

struct Argument {
  ExpressionPtr value;
  bool spread = false;  // *value
};
struct Arguments {
  std::vector<Argument> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
};

struct Literal {
  Value value;
};
struct Name {
  std::size_t slot;  // index into Program::names
};
struct ListLiteral {
  std::vector<ExpressionPtr> items;
  bool tuple;
};
struct DictLiteral {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> entries;
};
struct Negation {  // not x
  ExpressionPtr operand;
};
struct Sign {  // -x, +x
  bool negative;
  ExpressionPtr operand;
};
// a op b op c ..., left to right, all of one precedence: flat, so that a long sum is not a deep tree.
struct Chain {
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> rest;
};
struct Junction {  // a or b or c; a and b and c
  bool is_or;
  std::vector<ExpressionPtr> operands;
};
struct Conditional {
  ExpressionPtr condition, then, otherwise;  // otherwise may be null: undefined
};
struct Member {  // object.name
  ExpressionPtr object;
  std::string name;
};
struct Subscript {  // object[index]
  ExpressionPtr object, index;
};
struct Slice {  // object[start:stop:step], each part may be null
  ExpressionPtr object, start, stop, step;
};
struct CallExpression {
  ExpressionPtr callee;
  Arguments arguments;
};
struct Filter {
  ExpressionPtr operand;
  std::string name;
  Arguments arguments;
};
struct Test {
  ExpressionPtr operand;
  std::string name;
  Arguments arguments;
  bool negated;
};

struct Expression {
  std::variant<Literal, Name, ListLiteral, DictLiteral, Negation, Sign, Chain, Junction, Conditional, Member, Subscript,
               Slice, CallExpression, Filter, Test>
      node;
  int depth;  // levels of the tree below and with this node
};

struct Output {
  std::string text;  // literal text, if there is no expression
  ExpressionPtr expression;
};
struct Set {
  ExpressionPtr target;  // a Name, a Member or a tuple of Names; anything else fails when reached
  ExpressionPtr value;   // null: the text of the body
  Body body;
};
struct If {
  struct Branch {
    ExpressionPtr condition;
    Body body;
  };
  std::vector<Branch> branches;
  Body otherwise;
};
struct For {
  std::vector<std::size_t> targets;   // slots; several: each element is unpacked
  ExpressionPtr iterable, condition;  // condition may be null
  Body body, otherwise;
};
struct Parameter {
  std::size_t slot;
  std::string name;
  ExpressionPtr fallback;  // null: required
};
struct Macro {
  std::size_t slot;
  std::string name;
  std::vector<Parameter> parameters;
  Body body;
};
struct CallBlock {
  std::vector<Parameter> parameters;
  ExpressionPtr call;  // a CallExpression
  Body body;
};
struct FilterBlock {
  std::string name;
  Arguments arguments;
  Body body;
};
struct Break {};
struct Continue {};

struct Statement {
  std::variant<Output, Set, If, For, Macro, CallBlock, FilterBlock, Break, Continue> node;
  int line;
};

struct Program {
  Body body;
  std::vector<std::string> names;  // of all variables, by slot
  std::size_t loop_slot = 0, caller_slot = 0;

  Program() = default;
  Program(Program&&) = default;
  Program& operator=(Program&&) = default;
};

}  // namespace bankml::jinja
