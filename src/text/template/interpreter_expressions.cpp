// The half of the interpreter that evaluates expressions and calls.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "text/template/builtins.hpp"
#include "text/template/interpreter.hpp"
#include "text/template/operators.hpp"
#include "text/template/text_form.hpp"

namespace bankml::jinja {
namespace {

bool is_concatenation(Operator op, const Value& a, const Value& b) {
  return (op == Operator::add || op == Operator::concat) && (a.is(Kind::text) || b.is(Kind::text));
}

void append_operand(const Value& value, std::string& out, Heap& heap) {
  if (!value.is(Kind::none)) append_text(value, out, heap);
}

}  // namespace

Value Interpreter::eval(const Expression& expression) {
  const Level level(*this);
  heap_.work();
  return std::visit([this](const auto& node) { return eval_node(node); }, expression.node);
}

Value Interpreter::eval_node(const Name& name) {
  const Value& value = (*scope_)[name.slot];
  value.mark_read();
  return value;
}

Value Interpreter::eval_node(const ListLiteral& list) {
  const Held held(heap_, list.items.size() * sizeof(Value));
  std::vector<Value> items;
  items.reserve(list.items.size());
  for (const ExpressionPtr& item : list.items) items.push_back(eval(*item));
  return heap_.make_list(std::move(items), list.tuple);
}

Value Interpreter::eval_node(const DictLiteral& dict) {
  Dict* result = heap_.make_dict();
  for (const auto& [key, value] : dict.entries) {
    const Value k = eval(*key);
    heap_.set(*result, k, eval(*value));
  }
  return result;
}

Value Interpreter::eval_node(const Sign& sign) {
  const Value value = eval(*sign.operand);
  if (value.is(Kind::integer)) return sign.negative ? to_integer(-value.number()) : value.integer();
  if (value.is(Kind::floating)) return sign.negative ? -value.floating() : value.floating();
  throw RenderError(fmt::format("a sign needs a number, not {}", kind_name(value)));
}

Value Interpreter::eval_node(const Chain& chain) {
  Value left = eval(*chain.first);
  std::string text;  // the left side, while it is a concatenation in progress
  Held held(heap_);
  bool concatenating = false;
  for (const auto& [op, operand] : chain.rest) {
    const Value right = eval(*operand);
    if ((concatenating && (op == Operator::add || op == Operator::concat)) || is_concatenation(op, left, right)) {
      if (!std::exchange(concatenating, true)) append_operand(left, text, heap_);
      append_operand(right, text, heap_);
      held.grow_to(text.size());
      continue;
    }
    if (std::exchange(concatenating, false)) left = heap_.make_text(std::exchange(text, {}));
    left = binary(heap_, op, left, right);
  }
  return concatenating ? heap_.make_text(std::move(text)) : left;
}

Value Interpreter::eval_node(const Junction& junction) {
  Value value;
  for (const ExpressionPtr& operand : junction.operands) {
    value = eval(*operand);
    if (value.truthy() == junction.is_or) break;
  }
  return value;
}

Value Interpreter::eval_node(const Conditional& conditional) {
  if (eval(*conditional.condition).truthy()) return eval(*conditional.then);
  return conditional.otherwise ? eval(*conditional.otherwise) : Value();
}

// A built-in method wins over a key of the same name.
Value Interpreter::eval_node(const Member& member) {
  const Value object = eval(*member.object);
  if (const Builtin* method = find_method(object, member.name)) {
    Function function;
    function.builtin = method;
    function.self = object;
    return heap_.make_function(std::move(function));
  }
  Value value = jinja::member(heap_, object, member.name);
  value.mark_read();
  return value;
}

// A key wins over a built-in method of the same name.
Value Interpreter::eval_node(const Subscript& subscript) {
  const Value object = eval(*subscript.object);
  const Value index = eval(*subscript.index);
  if (std::optional<Value> value = element(heap_, object, index)) {
    value->mark_read();
    return *value;
  }
  if (!object.is(Kind::undefined) && index.is(Kind::text)) {
    if (const Builtin* method = find_method(object, index.text())) {
      Function function;
      function.builtin = method;
      function.self = object;
      return heap_.make_function(std::move(function));
    }
  }
  return {};
}

Value Interpreter::eval_node(const Slice& part) {
  const Value object = eval(*part.object);
  Value bounds[3];
  const ExpressionPtr* expressions[] = {&part.start, &part.stop, &part.step};
  const Value* given[3] = {};
  for (int i = 0; i < 3; ++i) {
    if (!*expressions[i]) continue;
    bounds[i] = eval(**expressions[i]);
    given[i] = &bounds[i];
  }
  return slice(heap_, object, given[0], given[1], given[2]);
}

Value Interpreter::eval_node(const Filter& filter) {
  Value self = eval(*filter.operand);
  CallArguments arguments = eval_arguments(filter.arguments);
  Call call{heap_, filter.name, std::move(self), std::move(arguments.positional), std::move(arguments.named)};
  return run_filter(call);
}

Value Interpreter::eval_node(const Test& test) {
  const Value value = eval(*test.operand);
  const CallArguments arguments = eval_arguments(test.arguments);
  return run_test(heap_, test.name, value, arguments.positional) != test.negated;
}

// Calls

Interpreter::CallArguments Interpreter::eval_arguments(const Arguments& arguments) {
  const std::size_t listed = arguments.positional.size() + 2 * arguments.named.size();
  CallArguments result{{}, {}, Held(heap_, listed * sizeof(Value))};
  for (const Argument& argument : arguments.positional) {
    Value value = eval(*argument.value);
    if (!argument.spread) {
      result.positional.push_back(std::move(value));
    } else if (value.is(Kind::list)) {
      const auto& items = value.list().items;
      result.held.add(items.size() * sizeof(Value));
      result.positional.insert(result.positional.end(), items.begin(), items.end());
    } else {
      throw RenderError(fmt::format("* expects a list, not {}", kind_name(value)));
    }
  }
  for (const auto& [name, value] : arguments.named) result.named.emplace_back(name, eval(*value));
  return result;
}

Value Interpreter::eval_node(const CallExpression& call) {
  return eval_call(call, {});
}

Value Interpreter::eval_call(const CallExpression& call, const Value& caller) {
  // The common object.method(...) needs no function object.
  if (const auto* member = std::get_if<Member>(&call.callee->node)) {
    Value object = eval(*member->object);
    if (const Builtin* method = find_method(object, member->name)) {
      CallArguments arguments = eval_arguments(call.arguments);
      Call bound{heap_, method->name, std::move(object), std::move(arguments.positional), std::move(arguments.named)};
      return run_builtin(*method, bound);
    }
    const Value callee = jinja::member(heap_, object, member->name);
    if (!callee.is(Kind::function)) {
      throw RenderError(fmt::format("{} has no method '{}'", kind_name(object), member->name));
    }
    return invoke(callee.function(), eval_arguments(call.arguments), caller);
  }
  const Value callee = eval(*call.callee);
  if (!callee.is(Kind::function)) {
    const auto* name = std::get_if<Name>(&call.callee->node);
    throw RenderError(name ? fmt::format("'{}' is {}, not a function", program_.names[name->slot], kind_name(callee))
                           : fmt::format("{} is not a function", kind_name(callee)));
  }
  return invoke(callee.function(), eval_arguments(call.arguments), caller);
}

Value Interpreter::invoke(const Function& function, CallArguments arguments, const Value& caller) {
  if (!function.builtin) return call_macro(function, arguments, caller);
  Call call{heap_, function.builtin->name, function.self, std::move(arguments.positional), std::move(arguments.named)};
  return run_builtin(*function.builtin, call);
}

Value Interpreter::call_macro(const Function& function, const CallArguments& arguments, const Value& caller) {
  heap_.loop_step();
  heap_.check_depth(++macro_depth_);
  // Dynamic scoping: a macro sees what its caller sees. caller() sees what its block does.
  ScopeCopy inner(heap_, function.macro ? *scope_ : *function.scope);
  const Body* body = nullptr;
  if (function.macro) {
    bind(function.macro->parameters, arguments, function.macro->name, inner.values);
    if (!caller.is(Kind::undefined)) inner.values[program_.caller_slot] = caller;
    body = &function.macro->body;
  } else {
    bind(function.call_block->parameters, arguments, "caller", inner.values);
    body = &function.call_block->body;
  }
  const int line = line_;
  Value text;
  {
    const InScope scope(*this, inner.values);
    text = capture(*body);
  }
  line_ = line;
  --macro_depth_;
  return text;
}

// Surplus arguments are ignored. Defaults are evaluated in the scope of the call.
void Interpreter::bind(const std::vector<Parameter>& parameters, const CallArguments& arguments, std::string_view name,
                       Scope& inner) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                    [&](const auto& argument) { return argument.first == parameter.name; });
    if (named != arguments.named.end()) {
      inner[parameter.slot] = named->second;
    } else if (i < arguments.positional.size()) {
      inner[parameter.slot] = arguments.positional[i];
    } else if (parameter.fallback) {
      inner[parameter.slot] = eval(*parameter.fallback);
    } else {
      throw RenderError(fmt::format("{}() lacks the argument '{}'", name, parameter.name));
    }
  }
}

}  // namespace bankml::jinja
