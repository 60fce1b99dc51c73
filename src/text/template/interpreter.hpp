#pragma once
#include <fmt/core.h>

#include <string>
#include <string_view>

#include "text/template/ast.hpp"

namespace bankml::jinja {

// One rendering of a program. The heap holds the limits and everything that the rendering makes; both outlive this
// object.
class Interpreter {
 public:
  Interpreter(const Program& program, Heap& heap);

  // Ignored where the template never names the variable.
  void set(std::string_view name, Value value);

  // Once. Throws Error(invalid_request): raise_exception's text as it is, other failures with the line of their
  // statement.
  std::string run();

 private:
  enum class Flow { next, break_loop, continue_loop };
  class Level;
  class InScope;
  struct CallArguments {
    std::vector<Value> positional;
    std::vector<std::pair<std::string_view, Value>> named;
    Held held;  // the memory of both
  };
  // A copy of the variables for a block or a macro to change.
  struct ScopeCopy {
    ScopeCopy(Heap& heap, const Scope& scope) : held(heap, scope.size() * sizeof(Value)), values(scope) {}
    Held held;
    Scope values;
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
  std::vector<Value> loop_items(const For& loop, const Value& iterable, Held& held);
  Value call_macro(const Function& function, const CallArguments& arguments, const Value& caller);
  void bind(const std::vector<Parameter>& parameters, const CallArguments& arguments, std::string_view name,
            Scope& inner);

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

  // Nodes that may stand on the stack for each level of macro calls: a template that recurses through a schema passes
  // about ten on the way from one call to the next.
  static constexpr int kNodesPerLevel = 10;

  const Program& program_;
  Heap& heap_;
  Scope globals_;
  Scope* scope_ = &globals_;
  std::string out_;  // captures are its tail, cut off again: one bound covers them all
  int line_ = 1, level_ = 0, macro_depth_ = 0;
};

class Interpreter::Level {
 public:
  explicit Level(Interpreter& interpreter) : interpreter_(interpreter) {
    if (interpreter_.level_ >= interpreter_.heap_.limits.depth * kNodesPerLevel) {
      throw RenderError(fmt::format("macro calls nested deeper than {} levels", interpreter_.heap_.limits.depth));
    }
    ++interpreter_.level_;
  }
  ~Level() { --interpreter_.level_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;

 private:
  Interpreter& interpreter_;
};

class Interpreter::InScope {
 public:
  InScope(Interpreter& interpreter, Scope& scope) : interpreter_(interpreter), outer_(interpreter.scope_) {
    interpreter_.scope_ = &scope;
  }
  ~InScope() { interpreter_.scope_ = outer_; }
  InScope(const InScope&) = delete;
  InScope& operator=(const InScope&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* outer_;
};

}  // namespace bankml::jinja
