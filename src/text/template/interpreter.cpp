#include "text/template/interpreter.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "bankml/base/error.hpp"
#include "text/template/builtins.hpp"
#include "text/template/operators.hpp"
#include "text/template/text_form.hpp"

namespace bankml::jinja {
namespace {

// Nodes that may stand on the stack for each level of macro calls: a template that recurses through a schema passes about
// ten on the way from one call to the next.
constexpr int kNodesPerLevel = 10;

bool is_concatenation(Operator op, const Value& a, const Value& b) {
  return (op == Operator::add || op == Operator::concat) && (a.is(Kind::text) || b.is(Kind::text));
}

void append_operand(const Value& value, std::string& out, Heap& heap) {
  if (!value.is(Kind::none)) append_text(value, out, heap);
}

// What a template sees as `loop`. One dict per loop, updated from iteration to iteration.
class LoopState {
 public:
  LoopState(Heap& heap, const std::vector<Value>& items) : items_(items), dict_(heap.make_dict()) {
    for (const char* key : {"index0", "index", "first", "last", "length", "revindex0", "revindex", "previtem", "nextitem"}) {
      heap.add_new(*dict_, Value::borrowed(key), {});
    }
  }

  Value at(std::size_t i) {
    const std::size_t size = items_.size();
    const auto number = [](std::size_t n) { return Value(static_cast<std::int64_t>(n)); };
    const Value values[] = {number(i),        number(i + 1),        i == 0,
                            i + 1 == size,    number(size),         number(size - i - 1),
                            number(size - i), i > 0 ? items_[i - 1] : Value(), i + 1 < size ? items_[i + 1] : Value()};
    for (std::size_t k = 0; k < std::size(values); ++k) dict_->entries[k].second = values[k];
    return dict_;
  }

 private:
  const std::vector<Value>& items_;
  Dict* dict_;
};

}  // namespace

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
    interpreter_.heap_.work(static_cast<std::int64_t>(scope.size() / 8));
  }
  ~InScope() { interpreter_.scope_ = outer_; }
  InScope(const InScope&) = delete;
  InScope& operator=(const InScope&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* outer_;
};

Interpreter::Interpreter(const Program& program, Heap& heap) : program_(program), heap_(heap), globals_(program.names.size()) {
  for (std::size_t slot = 0; slot < globals_.size(); ++slot) {
    if (const Builtin* builtin = find_global(program.names[slot])) {
      Function function;
      function.builtin = builtin;
      globals_[slot] = heap.make_function(std::move(function));
    }
  }
}

void Interpreter::set(std::string_view name, Value value) {
  const auto it = std::find(program_.names.begin(), program_.names.end(), name);
  if (it != program_.names.end()) globals_[static_cast<std::size_t>(it - program_.names.begin())] = std::move(value);
}

std::string Interpreter::run() {
  try {
    if (exec(program_.body) != Flow::next) throw RenderError("break or continue outside of a loop");
    return std::move(out_);
  } catch (const TemplateRaised& raised) {
    throw Error(ErrorKind::invalid_request, raised.what());
  } catch (const RenderError& error) {
    throw Error(ErrorKind::invalid_request, fmt::format("chat template, line {}: {}", line_, error.what()));
  }
}

// Statements

Interpreter::Flow Interpreter::exec(const Body& body) {
  const Level level(*this);
  for (const Statement& statement : body) {
    heap_.work();
    line_ = statement.line;
    const Flow flow = std::visit([this](const auto& node) { return exec_node(node); }, statement.node);
    if (flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::exec_node(const Output& output) {
  if (output.expression) {
    append_printed(eval(*output.expression), out_, heap_);
  } else {
    out_ += output.text;
  }
  if (out_.size() > heap_.limits.output) {
    throw RenderError(fmt::format("the rendering gives more than {} bytes", heap_.limits.output));
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::exec_node(const Set& set) {
  assign(*set.target, set.value ? eval(*set.value) : capture(set.body));
  return Flow::next;
}

Interpreter::Flow Interpreter::exec_node(const If& block) {
  for (const If::Branch& branch : block.branches) {
    if (eval(*branch.condition).truthy()) return exec(branch.body);
  }
  return exec(block.otherwise);
}

Interpreter::Flow Interpreter::exec_node(const For& loop) {
  const Value iterable = eval(*loop.iterable);
  bool completed = false;
  {
    Scope scope = *scope_;  // one for the whole loop: what an iteration sets, the next ones see
    const InScope inner(*this, scope);
    const std::vector<Value> items = loop_items(loop, iterable);
    LoopState state(heap_, items);
    for (std::size_t i = 0; i < items.size(); ++i) {
      heap_.loop_step();
      unpack(loop.targets, items[i]);
      scope[program_.loop_slot] = state.at(i);
      const Flow flow = exec(loop.body);
      if (flow == Flow::break_loop) break;
      completed = completed || flow == Flow::next;
    }
  }
  return completed ? Flow::next : exec(loop.otherwise);
}

// The elements that the loop visits: a copy, so that the body may change the list.
std::vector<Value> Interpreter::loop_items(const For& loop, const Value& iterable) {
  std::vector<Value> items;
  iterable.mark_array();
  if (iterable.is(Kind::list)) {
    items = iterable.list().items;
  } else if (iterable.is(Kind::dict)) {
    for (const auto& [key, value] : iterable.dict().entries) {
      items.push_back(loop.targets.size() == 1 ? key : Value(heap_.make_list({key, value}, true)));
    }
  } else if (!iterable.is(Kind::undefined)) {
    throw RenderError(fmt::format("for expects a list or a dict, not {}", kind_name(iterable)));
  }
  heap_.work(static_cast<std::int64_t>(items.size() / 8));
  if (loop.condition) {
    std::erase_if(items, [&](const Value& item) {
      heap_.loop_step();
      unpack(loop.targets, item);
      return !eval(*loop.condition).truthy();
    });
  }
  return items;
}

void Interpreter::unpack(const std::vector<std::size_t>& slots, const Value& value) {
  if (slots.size() == 1) {
    value.mark_read();
    (*scope_)[slots[0]] = value;
    return;
  }
  if (!value.is(Kind::list) || value.list().items.size() != slots.size()) {
    throw RenderError(fmt::format("can't unpack {} into {} variables", kind_name(value), slots.size()));
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    value.list().items[i].mark_read();
    (*scope_)[slots[i]] = value.list().items[i];
  }
}

Interpreter::Flow Interpreter::exec_node(const Macro& macro) {
  Function function;
  function.macro = &macro;
  (*scope_)[macro.slot] = heap_.make_function(std::move(function));
  return Flow::next;
}

Interpreter::Flow Interpreter::exec_node(const CallBlock& block) {
  Function caller;
  caller.call_block = &block;
  caller.scope = heap_.keep(*scope_);
  const Value value = eval_call(std::get<CallExpression>(block.call->node), heap_.make_function(std::move(caller)));
  append_printed(value, out_, heap_);
  return Flow::next;
}

Interpreter::Flow Interpreter::exec_node(const FilterBlock& block) {
  CallArguments arguments = eval_arguments(block.arguments);
  Call call{heap_, block.name, capture(block.body), std::move(arguments.positional), std::move(arguments.named)};
  append_printed(run_filter(call), out_, heap_);
  return Flow::next;
}

Value Interpreter::capture(const Body& body) {
  const std::size_t start = out_.size();
  if (exec(body) != Flow::next) throw RenderError("break or continue outside of a loop");
  std::string text = out_.substr(start);
  out_.resize(start);
  return heap_.make_text(std::move(text));
}

void Interpreter::assign(const Expression& target, Value value) {
  if (const auto* name = std::get_if<Name>(&target.node)) {
    (*scope_)[name->slot] = std::move(value);
  } else if (const auto* member = std::get_if<Member>(&target.node)) {
    const Value object = eval(*member->object);
    if (!object.is(Kind::dict)) throw RenderError(fmt::format("can't set a member of {}", kind_name(object)));
    heap_.set(object.dict(), Value::borrowed(member->name), std::move(value));
  } else if (const auto* tuple = std::get_if<ListLiteral>(&target.node); tuple && tuple->tuple) {
    std::vector<std::size_t> slots;
    for (const ExpressionPtr& item : tuple->items) {
      const auto* item_name = std::get_if<Name>(&item->node);
      if (!item_name) throw RenderError("set unpacks into plain names only");
      slots.push_back(item_name->slot);
    }
    unpack(slots, value);
  } else {
    throw RenderError("set expects a name, a member or a list of names");
  }
}

// Expressions

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
  bool concatenating = false;
  for (const auto& [op, operand] : chain.rest) {
    const Value right = eval(*operand);
    if ((concatenating && (op == Operator::add || op == Operator::concat)) || is_concatenation(op, left, right)) {
      if (!std::exchange(concatenating, true)) append_operand(left, text, heap_);
      append_operand(right, text, heap_);
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
  Value value = jinja::member(object, member.name);
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
  CallArguments result;
  for (const Argument& argument : arguments.positional) {
    Value value = eval(*argument.value);
    if (!argument.spread) {
      result.positional.push_back(std::move(value));
    } else if (value.is(Kind::list)) {
      const auto& items = value.list().items;
      result.positional.insert(result.positional.end(), items.begin(), items.end());
      heap_.work(static_cast<std::int64_t>(items.size() / 8));
    } else {
      throw RenderError(fmt::format("* expects a list, not {}", kind_name(value)));
    }
  }
  for (const auto& [name, value] : arguments.named) result.named.emplace_back(name, eval(*value));
  return result;
}

Value Interpreter::eval_node(const CallExpression& call) { return eval_call(call, {}); }

Value Interpreter::eval_call(const CallExpression& call, const Value& caller) {
  // The common object.method(...) needs no function object.
  if (const auto* member = std::get_if<Member>(&call.callee->node)) {
    Value object = eval(*member->object);
    if (const Builtin* method = find_method(object, member->name)) {
      CallArguments arguments = eval_arguments(call.arguments);
      Call bound{heap_, method->name, std::move(object), std::move(arguments.positional), std::move(arguments.named)};
      return method->run(bound);
    }
    const Value callee = jinja::member(object, member->name);
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
  return function.builtin->run(call);
}

Value Interpreter::call_macro(const Function& function, const CallArguments& arguments, const Value& caller) {
  heap_.loop_step();
  heap_.check_depth(++macro_depth_);
  Scope inner;
  const Body* body = nullptr;
  if (function.macro) {
    inner = *scope_;  // dynamic scoping: a macro sees what its caller sees
    bind(function.macro->parameters, arguments, function.macro->name, inner);
    if (!caller.is(Kind::undefined)) inner[program_.caller_slot] = caller;
    body = &function.macro->body;
  } else {
    inner = *function.scope;
    bind(function.call_block->parameters, arguments, "caller", inner);
    body = &function.call_block->body;
  }
  const int line = line_;
  Value text;
  {
    const InScope scope(*this, inner);
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
