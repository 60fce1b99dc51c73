#pragma once
// Functions, filters, methods and tests that templates can name (docs/chat-templates.md 3.5). A filter is a method of
// the operand's type.
#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/template/value.hpp"

namespace bankml::jinja {

// One call. Errors are RenderErrors that name the function.
struct Call {
  Heap& heap;
  std::string_view name;
  Value self;  // what the filter or method is applied to; undefined for global functions
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;

  // The argument at `index` or under `keyword`; null if absent. An empty keyword: by position only.
  const Value* argument(std::size_t index, std::string_view keyword = {}) const;
  bool flag(std::size_t index, std::string_view keyword) const;  // truthiness, false if absent
  std::string_view text_argument(std::size_t index, std::string_view keyword = {}) const;  // required, a string
  void at_most(std::size_t count) const;  // positional arguments; more are an error, unknown keywords are ignored
  [[noreturn]] void fail(const std::string& what) const;
};

struct Builtin {
  std::string_view name;
  Value (*run)(Call& call);
};

// Null if there is none of that name.
template <class Table>
const Builtin* find_in(const Table& table, std::string_view name) {
  const auto* it = std::find_if(std::begin(table), std::end(table), [&](const Builtin& b) { return b.name == name; });
  return it == std::end(table) ? nullptr : it;
}
const Builtin* find_global(std::string_view name);
const Builtin* find_method(const Value& self, std::string_view name);
// Runs a function, filter or method that is applied to `call.self`. What it does to each byte of a text is counted
// here.
Value run_builtin(const Builtin& builtin, Call& call);
// `call.self | call.name(...)`: a method of the type, or a string filter on the text of anything else. Unknown: an
// error.
Value run_filter(Call& call);

// `value is name(argument...)`. An unknown test is an error.
bool run_test(Heap& heap, std::string_view name, const Value& value, const std::vector<Value>& arguments);

// `needle in haystack`
bool contains(Heap& heap, const Value& needle, const Value& haystack);
// A total order for sort, min and max: numbers, booleans, strings by byte, then the rest (all equal).
bool ordered_before(Heap& heap, const Value& a, const Value& b);
// object[start:stop:step] of a list or string; parts are null where left out. Bytes of strings.
Value slice(Heap& heap, const Value& object, const Value* start, const Value* stop, const Value* step);
// Cut towards zero; what does not fit gives the lowest integer, as the conversion instruction of x86 does.
std::int64_t to_integer(double number);

// The tables, by type; each ends its own file.
const Builtin* find_string_method(std::string_view name);
const Builtin* find_list_method(std::string_view name);
const Builtin* find_dict_method(std::string_view name);

}  // namespace bankml::jinja
