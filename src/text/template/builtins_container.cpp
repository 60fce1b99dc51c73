// Methods and filters of lists and dicts.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "text/template/builtins.hpp"
#include "text/template/text_form.hpp"

namespace bankml::jinja {
namespace {

// Member `attribute` of a dict, or element of a list where it is a number; undefined if there is none.
Value attribute_of(Call& call, const Value& item, const Value& attribute) {
  call.heap.work();
  if (item.is(Kind::dict)) {
    const Value* found = call.heap.find(item.dict(), attribute);
    return found ? *found : Value();
  }
  if (item.is(Kind::list) && attribute.is(Kind::integer)) {
    const auto& items = item.list().items;
    const std::int64_t index = attribute.integer();
    if (index >= 0 && index < static_cast<std::int64_t>(items.size())) return items[static_cast<std::size_t>(index)];
  }
  return {};
}

Value run_length(Call& call) {
  return static_cast<std::int64_t>(call.self.list().items.size());
}
Value run_first(Call& call) {
  return call.self.list().items.empty() ? Value() : call.self.list().items.front();
}
Value run_last(Call& call) {
  return call.self.list().items.empty() ? Value() : call.self.list().items.back();
}
Value run_list(Call& call) {
  return call.heap.make_list(call.self.list().items);
}

Value run_slice(Call& call) {
  if (call.positional.size() != 3) call.fail("needs start, stop and step");
  return slice(call.heap, call.self, &call.positional[0], &call.positional[1], &call.positional[2]);
}

Value run_join(Call& call) {
  call.at_most(2);
  std::string separator, out;
  if (const Value* given = call.argument(0, "d")) separator = to_text(*given, call.heap);
  const Value* attribute = call.argument(1, "attribute");
  bool first = true;
  for (const Value& item : call.self.list().items) {
    const Value part = attribute ? attribute_of(call, item, *attribute) : item;
    if (!part.is(Kind::text) && !part.is_number()) {
      call.fail(fmt::format("elements must be strings or numbers, not {}", kind_name(part)));
    }
    if (!std::exchange(first, false)) out += separator;
    call.heap.work();
    append_text(part, out, call.heap);
  }
  return call.heap.make_text(std::move(out));
}

Value run_map(Call& call) {
  if (!call.positional.empty()) call.fail("only map(attribute=...) is available");
  call.at_most(0);
  const Value* attribute = call.argument(0, "attribute");
  if (!attribute) call.fail("only map(attribute=...) is available");
  const Value* fallback = call.argument(1, "default");
  List* result = call.heap.make_list();
  for (const Value& item : call.self.list().items) {
    Value value = attribute_of(call, item, *attribute);
    call.heap.append(*result, fallback && value.is(Kind::undefined) ? *fallback : std::move(value));
  }
  return result;
}

// One argument: the truth of that attribute. Two: a test of the elements. Three: a test of that attribute.
Value select(Call& call, bool keep) {
  call.at_most(3);
  const auto& arguments = call.positional;
  if (arguments.empty()) call.fail("needs an attribute, or a test and its argument");
  List* result = call.heap.make_list();
  for (const Value& item : call.self.list().items) {
    Value value = item;
    if (arguments.size() != 2) {
      if (!item.is(Kind::dict)) call.fail(fmt::format("elements must be dicts, not {}", kind_name(item)));
      value = attribute_of(call, item, arguments[0]);
    }
    const bool holds = arguments.size() == 1
                           ? value.truthy()
                           : run_test(call.heap, call.text_argument(arguments.size() - 2), value, {arguments.back()});
    if (holds == keep) call.heap.append(*result, item);
  }
  return result;
}
Value run_select(Call& call) {
  return select(call, true);
}
Value run_reject(Call& call) {
  return select(call, false);
}

Value run_sort(Call& call) {
  call.at_most(3);
  const bool reverse = call.flag(0, "reverse");
  const Value* attribute = call.argument(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;  // the key and the element
  for (const Value& item : call.self.list().items) {
    keyed.emplace_back(attribute ? attribute_of(call, item, *attribute) : item, item);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? ordered_before(call.heap, b.first, a.first) : ordered_before(call.heap, a.first, b.first);
  });
  List* result = call.heap.make_list();
  for (auto& entry : keyed) call.heap.append(*result, std::move(entry.second));
  return result;
}

Value run_reverse(Call& call) {
  std::vector<Value> items = call.self.list().items;
  std::reverse(items.begin(), items.end());
  return call.heap.make_list(std::move(items));
}

Value run_min(Call& call) {
  if (call.argument(2, "attribute")) call.fail("has no attribute argument");
  const auto& items = call.self.list().items;
  const auto before = [&](const Value& a, const Value& b) { return ordered_before(call.heap, a, b); };
  return items.empty() ? Value() : *std::min_element(items.begin(), items.end(), before);
}
Value run_max(Call& call) {
  if (call.argument(2, "attribute")) call.fail("has no attribute argument");
  const auto& items = call.self.list().items;
  const auto before = [&](const Value& a, const Value& b) { return ordered_before(call.heap, a, b); };
  return items.empty() ? Value() : *std::max_element(items.begin(), items.end(), before);
}

Value run_append(Call& call) {
  call.at_most(1);
  if (call.positional.empty()) call.fail("needs the new element");
  call.heap.append(call.self.list(), call.positional[0]);
  return call.self;
}

Value run_pop(Call& call) {
  call.at_most(1);
  auto& items = call.self.list().items;
  const auto size = static_cast<std::int64_t>(items.size());
  const Value* given = call.argument(0);
  if (given && !given->is(Kind::integer)) call.fail("the index must be an integer");
  std::int64_t index = given ? given->integer() : -1;
  if (index < 0) index += size;
  if (index < 0 || index >= size) call.fail(fmt::format("no element {} in a list of {}", index, size));
  call.heap.work(size / 8);
  Value taken = items[static_cast<std::size_t>(index)];
  items.erase(items.begin() + index);
  call.heap.release(sizeof(Value));
  return taken;
}

Value run_unique(Call& call) {
  call.fail("not available");
}

Value run_dict_length(Call& call) {
  return static_cast<std::int64_t>(call.self.dict().entries.size());
}
Value run_dict_join(Call& call) {
  call.fail("not available for dicts");
}

Value run_get(Call& call) {
  call.at_most(2);
  if (call.positional.empty()) call.fail("needs a key");
  const Value* found = call.heap.find(call.self.dict(), call.positional[0]);
  if (found) found->mark_read();
  const Value* fallback = call.argument(1);
  return found ? *found : fallback ? *fallback : Value(None{});
}

Value run_keys(Call& call) {
  List* result = call.heap.make_list();
  for (const auto& entry : call.self.dict().entries) call.heap.append(*result, entry.first);
  return result;
}

Value run_values(Call& call) {
  List* result = call.heap.make_list();
  for (const auto& entry : call.self.dict().entries) call.heap.append(*result, entry.second);
  return result;
}

Value run_items(Call& call) {
  List* result = call.heap.make_list();
  for (const auto& [key, value] : call.self.dict().entries) {
    call.heap.append(*result, call.heap.make_list({key, value}, true));
  }
  return result;
}

Value run_dictsort(Call& call) {
  call.at_most(3);
  const Value* by = call.argument(1, "by");
  const bool by_value = by && by->is(Kind::text) && by->text() == "value";
  const bool reverse = call.flag(2, "reverse");
  auto entries = call.self.dict().entries;
  std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
    const auto& x = by_value ? a.second : a.first;
    const auto& y = by_value ? b.second : b.first;
    return reverse ? ordered_before(call.heap, y, x) : ordered_before(call.heap, x, y);
  });
  Dict* result = call.heap.make_dict();
  for (auto& [key, value] : entries) call.heap.add_new(*result, std::move(key), std::move(value));
  return result;
}

constexpr Builtin kListMethods[] = {
    {"length", run_length},     {"count", run_length},      {"first", run_first},   {"last", run_last},
    {"list", run_list},         {"slice", run_slice},       {"join", run_join},     {"map", run_map},
    {"selectattr", run_select}, {"rejectattr", run_reject}, {"select", run_select}, {"reject", run_reject},
    {"sort", run_sort},         {"reverse", run_reverse},   {"min", run_min},       {"max", run_max},
    {"append", run_append},     {"pop", run_pop},           {"unique", run_unique},
};
constexpr Builtin kDictMethods[] = {
    {"get", run_get},           {"keys", run_keys},          {"values", run_values},  {"items", run_items},
    {"dictsort", run_dictsort}, {"length", run_dict_length}, {"join", run_dict_join},
};

}  // namespace

const Builtin* find_list_method(std::string_view name) {
  return find_in(kListMethods, name);
}
const Builtin* find_dict_method(std::string_view name) {
  return find_in(kDictMethods, name);
}

}  // namespace bankml::jinja
