#pragma once
#include <string>
#include <string_view>

#include "text/template/ast.hpp"

namespace bankml::jinja {

// One rendering of a program. The heap holds the limits and everything that the rendering makes; both outlive this object.
class Interpreter {
 public:
  Interpreter(const Program& program, Heap& heap);

  // Ignored where the template never names the variable.
  void set(std::string_view name, Value value);

  // Once. Throws Error(invalid_request): raise_exception's text as it is, other failures with the line of their statement.
  std::string run();

 private:
  enum class Flow { next, break_loop, continue_loop };
  class Level;
  class InScope;
  struct CallArguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string_view, Value>> named;
  };

  Flow exec(const Body& body);
  Flow exec_node(const Output& output);
  Flow exec_node(const Set& set);
  Flow exec_node(const If& block);
  Flow exec_node(const For& loop);
  Flow exec_node(const Macro& macro);
  Flow exec_node(const CallBlock& block);
  Flow exec_node(const FilterBlock& block);
  Flow exec_node(const Break&) { return Flow::break_loop; }
  Flow exec_node(const Continue&) { return Flow::continue_loop; }
  Value capture(const Body& body);
  void assign(const Expression& target, Value value);
  void unpack(const std::vector<std::size_t>& slots, const Value& value);
  std::vector<Value> loop_items(const For& loop, const Value& iterable);
  Value call_macro(const Function& function, const CallArguments& arguments, const Value& caller);
  void bind(const std::vector<Parameter>& parameters, const CallArguments& arguments, std::string_view name, Scope& inner);

  Value eval(const Expression& expression);
  Value eval_node(const Literal& literal) { return literal.value; }
  Value eval_node(const Name& name);
  Value eval_node(const ListLiteral& list);
  Value eval_node(const DictLiteral& dict);
  Value eval_node(const Negation& negation) { return !eval(*negation.operand).truthy(); }
  Value eval_node(const Sign& sign);
  Value eval_node(const Chain& chain);
  Value eval_node(const Junction& junction);
  Value eval_node(const Conditional& conditional);
  Value eval_node(const Member& member);
  Value eval_node(const Subscript& subscript);
  Value eval_node(const Slice& part);
  Value eval_node(const CallExpression& call);
  Value eval_node(const Filter& filter);
  Value eval_node(const Test& test);
  CallArguments eval_arguments(const Arguments& arguments);
  Value eval_call(const CallExpression& call, const Value& caller);
  Value invoke(const Function& function, CallArguments arguments, const Value& caller);

  const Program& program_;
  Heap& heap_;
  Scope globals_;
  Scope* scope_ = &globals_;
  std::string out_;  // captures are its tail, cut off again: one bound covers them all
  int line_ = 1, level_ = 0, macro_depth_ = 0;
};

}  // namespace bankml::jinja
