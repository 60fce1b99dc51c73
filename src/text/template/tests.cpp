// The tests of `value is name(...)`.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "text/template/builtins.hpp"
#include "text/template/text_form.hpp"

namespace bankml::jinja {
namespace {

struct Question {
  Heap& heap;
  std::string_view name;
  const Value& value;
  const std::vector<Value>& arguments;

  const Value& argument() const {
    if (arguments.size() != 1) throw RenderError(fmt::format("test {}: needs one argument", name));
    return arguments[0];
  }
  std::int64_t integer() const {
    if (!value.is(Kind::integer))
      throw RenderError(fmt::format("test {}: expected an integer, got {}", name, kind_name(value)));
    return value.integer();
  }
  std::string_view text() const {
    if (!value.is(Kind::text))
      throw RenderError(fmt::format("test {}: expected a string, got {}", name, kind_name(value)));
    heap.work_on(value.text().size());
    return value.text();
  }
};
using Answer = bool (*)(const Question&);

bool is_sequence(const Question& q) {  // undefined and strings count, dicts do not
  return q.value.is(Kind::list) || q.value.is(Kind::text) || q.value.is(Kind::undefined);
}

// Across other types than these every comparison is false, `ne` too.
bool comparable(const Question& q) {
  const Value &a = q.value, &b = q.argument();
  return (a.is_number() && b.is_number()) || a.kind() == b.kind() || a.is(Kind::text) || b.is(Kind::text);
}
bool orders(const Value& v) {
  return v.is_number() || v.is(Kind::text);
}
// A number and a string are compared as text.
bool before(const Question& q, const Value& a, const Value& b) {
  if (!orders(a) || !orders(b)) return false;
  if (a.is(Kind::text) != b.is(Kind::text)) return to_text(a, q.heap) < to_text(b, q.heap);
  return ordered_before(q.heap, a, b);
}
bool less(const Question& q) {
  return before(q, q.value, q.argument());
}
bool greater(const Question& q) {
  return before(q, q.argument(), q.value);
}
bool at_least(const Question& q) {
  return orders(q.value) && orders(q.argument()) && !less(q);
}
bool equal(const Question& q) {
  return comparable(q) && q.heap.equal(q.value, q.argument());
}

bool is_lower(const Question& q) {
  const std::string_view text = q.text();
  return std::none_of(text.begin(), text.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
}
bool is_upper(const Question& q) {
  const std::string_view text = q.text();
  return std::none_of(text.begin(), text.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

bool divisible(const Question& q) {
  const Value& by = q.argument();
  if (!by.is(Kind::integer) || by.integer() == 0)
    throw RenderError("test divisibleby: expected an integer other than 0");
  return by.integer() == -1 || q.integer() % by.integer() == 0;
}

bool is_in(const Question& q) {
  return !(q.value.is(Kind::undefined) && q.argument().is(Kind::list)) && contains(q.heap, q.value, q.argument());
}

bool is_string(const Question& q) {
  if (Usage* usage = q.value.usage()) usage->asked_if_string = true;
  return q.value.is(Kind::text);
}

constexpr std::pair<std::string_view, Answer> kTests[] = {
    {"defined", [](const Question& q) { return !q.value.is(Kind::undefined); }},
    {"undefined", [](const Question& q) { return q.value.is(Kind::undefined); }},
    {"none", [](const Question& q) { return q.value.is(Kind::none); }},
    {"string", is_string},
    {"number", [](const Question& q) { return q.value.is_number(); }},
    {"integer", [](const Question& q) { return q.value.is(Kind::integer); }},
    {"float", [](const Question& q) { return q.value.is(Kind::floating); }},
    {"boolean", [](const Question& q) { return q.value.is(Kind::boolean); }},
    {"true", [](const Question& q) { return q.value.is(Kind::boolean) && q.value.boolean(); }},
    {"false", [](const Question& q) { return q.value.is(Kind::boolean) && !q.value.boolean(); }},
    {"mapping", [](const Question& q) { return q.value.is(Kind::dict); }},
    {"sequence", is_sequence},
    {"iterable", is_sequence},
    {"callable", [](const Question& q) { return q.value.is(Kind::function); }},
    {"odd", [](const Question& q) { return q.integer() % 2 != 0; }},
    {"even", [](const Question& q) { return q.integer() % 2 == 0; }},
    {"divisibleby", divisible},
    {"lower", is_lower},
    {"upper", is_upper},
    {"in", is_in},
    {"eq", equal},
    {"equalto", equal},
    {"ne", [](const Question& q) { return comparable(q) && !equal(q); }},
    {"lt", less},
    {"lessthan", less},
    {"gt", greater},
    {"greaterthan", greater},
    {"ge", at_least},
};

}  // namespace

bool run_test(Heap& heap, std::string_view name, const Value& value, const std::vector<Value>& arguments) {
  const auto* it =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const auto& test) { return test.first == name; });
  if (it == std::end(kTests)) throw RenderError(fmt::format("no test '{}'", name));
  heap.work();
  return it->second({heap, name, value, arguments});
}

}  // namespace bankml::jinja
