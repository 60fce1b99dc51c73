#include "text/template/interpreter.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "bankml/base/error.hpp"
#include "text/template/builtins.hpp"
#include "text/template/text_form.hpp"

namespace bankml::jinja {
namespace {

// What a template sees as `loop`. One dict per loop, updated from iteration to iteration.
class LoopState {
 public:
  LoopState(Heap& heap, const std::vector<Value>& items) : items_(items), dict_(heap.make_dict()) {
    dict_->has_methods = false;
    for (const char* key :
         {"index0", "index", "first", "last", "length", "revindex0", "revindex", "previtem", "nextitem"}) {
      heap.add_new(*dict_, Value::borrowed(key), {});
    }
  }

  Value at(std::size_t i) {
    const std::size_t size = items_.size();
    const auto number = [](std::size_t n) { return Value(static_cast<std::int64_t>(n)); };
    const Value values[] = {number(i),
                            number(i + 1),
                            i == 0,
                            i + 1 == size,
                            number(size),
                            number(size - i - 1),
                            number(size - i),
                            i > 0 ? items_[i - 1] : Value(),
                            i + 1 < size ? items_[i + 1] : Value()};
    for (std::size_t k = 0; k < std::size(values); ++k) dict_->entries[k].second = values[k];
    return dict_;
  }

 private:
  const std::vector<Value>& items_;
  Dict* dict_;
};

}  // namespace

Interpreter::Interpreter(const Program& program, Heap& heap)
    : program_(program), heap_(heap), globals_(program.names.size()) {
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
    ScopeCopy scope(heap_, *scope_);  // one for the whole loop: what an iteration sets, the next ones see
    const InScope inner(*this, scope.values);
    Held held(heap_);
    const std::vector<Value> items = loop_items(loop, iterable, held);
    LoopState state(heap_, items);
    for (std::size_t i = 0; i < items.size(); ++i) {
      heap_.loop_step();
      unpack(loop.targets, items[i]);
      scope.values[program_.loop_slot] = state.at(i);
      const Flow flow = exec(loop.body);
      if (flow == Flow::break_loop) break;
      completed = completed || flow == Flow::next;
    }
  }
  return completed ? Flow::next : exec(loop.otherwise);
}

// The elements that the loop visits: a copy, so that the body may change the list.
std::vector<Value> Interpreter::loop_items(const For& loop, const Value& iterable, Held& held) {
  std::vector<Value> items;
  iterable.mark_array();
  if (iterable.is(Kind::list)) {
    held.add(iterable.list().items.size() * sizeof(Value));
    items = iterable.list().items;
  } else if (iterable.is(Kind::dict)) {
    held.add(iterable.dict().entries.size() * sizeof(Value));
    for (const auto& [key, value] : iterable.dict().entries) {
      items.push_back(loop.targets.size() == 1 ? key : Value(heap_.make_list({key, value}, true)));
    }
  } else if (!iterable.is(Kind::undefined)) {
    throw RenderError(fmt::format("for expects a list or a dict, not {}", kind_name(iterable)));
  }
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
    (*scope_)[slots[0]] = value;
    return;
  }
  if (!value.is(Kind::list) || value.list().items.size() != slots.size()) {
    throw RenderError(fmt::format("can't unpack {} into {} variables", kind_name(value), slots.size()));
  }
  for (std::size_t i = 0; i < slots.size(); ++i) (*scope_)[slots[i]] = value.list().items[i];
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

}  // namespace bankml::jinja
