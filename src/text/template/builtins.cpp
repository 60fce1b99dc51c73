// What all types share, numbers, undefined and none, and the global functions.
#include "text/template/builtins.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <ctime>
#include <limits>

#include "text/template/text_form.hpp"

namespace bankml::jinja {
namespace {

constexpr std::size_t kDateBytes = 100;  // longest result of strftime_now, with its terminator

Value run_string(Call& call) {  // a float alone has six significant digits here, and may look like an integer
  if (call.self.is(Kind::floating)) return call.heap.make_text(to_short_text(call.self.floating()));
  std::string text;
  append_text(call.self, text, call.heap, Reading::deep);
  return call.heap.make_text(std::move(text));
}
Value run_safe(Call& call) {
  return run_string(call);
}  // there is no HTML escaping to be safe from

Value run_default(Call& call) {
  call.at_most(2);
  const Value* fallback = call.argument(0, "default_value");
  if (!fallback) call.fail("needs a value");
  const bool missing = call.self.is(Kind::undefined) || call.self.is(Kind::none);
  return missing || (call.flag(1, "boolean") && !call.self.truthy()) ? *fallback : call.self;
}

JsonStyle json_style(const Call& call, std::size_t first) {
  JsonStyle style;
  style.ascii = call.flag(first, "ensure_ascii");
  const Value* indent = call.argument(first + 1, "indent");
  if (indent && indent->is(Kind::integer) && indent->integer() >= 0) {
    if (indent->integer() > call.heap.limits.depth) call.fail("the indent is too wide");
    style.indent = indent->integer();
    style.item_separator = ",";
  }
  const Value* separators = call.argument(first + 2, "separators");
  if (separators && separators->is(Kind::list)) {
    const auto& items = separators->list().items;
    if (items.size() != 2 || !items[0].is(Kind::text) || !items[1].is(Kind::text))
      call.fail("separators must be two strings");
    style.item_separator = items[0].text();
    style.key_separator = items[1].text();
  }
  if (call.flag(first + 3, "sort_keys")) call.fail("sort_keys is not available");
  return style;
}

Value json_text(Call& call, const Value& value, std::size_t first) {
  call.at_most(first + 4);
  std::string out;
  append_json(value, json_style(call, first), out, call.heap);
  return call.heap.make_text(std::move(out));
}
Value run_tojson(Call& call) {
  return json_text(call, call.self, 0);
}

Value run_int(Call& call) {
  switch (call.self.kind()) {
    case Kind::boolean:
      return std::int64_t{call.self.boolean()};
    case Kind::floating:
      return to_integer(call.self.floating());
    default:
      return call.self;
  }
}
Value run_float(Call& call) {
  return call.self.is(Kind::boolean) ? Value(call.self.boolean() ? 1.0 : 0.0) : Value(call.self.number());
}
Value run_abs(Call& call) {
  if (call.self.is(Kind::floating)) return std::abs(call.self.floating());
  return call.self.integer() < 0 ? to_integer(-call.self.number()) : call.self.integer();
}

Value give_empty_text(Call& call) {
  return call.heap.make_text({});
}
Value give_empty_list(Call& call) {
  return call.heap.make_list();
}
Value give_undefined(Call&) {
  return {};
}
Value give_zero(Call&) {
  return std::int64_t{0};
}

constexpr Builtin kUndefined[] = {
    {"default", run_default},        {"d", run_default},
    {"string", give_empty_text},     {"safe", give_empty_text},
    {"upper", give_empty_text},      {"lower", give_empty_text},
    {"title", give_empty_text},      {"capitalize", give_empty_text},
    {"strip", give_empty_text},      {"trim", give_empty_text},
    {"replace", give_empty_text},    {"join", give_empty_text},
    {"list", give_empty_list},       {"map", give_empty_list},
    {"selectattr", give_empty_list}, {"rejectattr", give_empty_list},
    {"select", give_empty_list},     {"reject", give_empty_list},
    {"sort", give_empty_list},       {"reverse", give_empty_list},
    {"unique", give_empty_list},     {"items", give_empty_list},
    {"first", give_undefined},       {"last", give_undefined},
    {"min", give_undefined},         {"max", give_undefined},
    {"length", give_zero},           {"count", give_zero},
    {"wordcount", give_zero},        {"sum", give_zero},
};
constexpr Builtin kNone[] = {
    {"map", give_empty_list},        {"selectattr", give_empty_list},
    {"rejectattr", give_empty_list}, {"select", give_empty_list},
    {"reject", give_empty_list},     {"unique", give_empty_list},
    {"items", give_empty_list},      {"safe", run_safe},
};
constexpr Builtin kNumbers[] = {{"int", run_int}, {"float", run_float}, {"abs", run_abs}, {"safe", run_safe}};
constexpr Builtin kBooleans[] = {{"int", run_int}, {"float", run_float}, {"safe", run_safe}};
constexpr Builtin kTexts[] = {{"safe", run_safe}};
constexpr Builtin kDefault[] = {{"default", run_default}, {"d", run_default}};
constexpr Builtin kShared[] = {{"string", run_string}, {"tojson", run_tojson}};
constexpr std::array<std::string_view, 6> kTextFilters{"upper", "lower", "title", "capitalize", "strip", "trim"};

const Builtin* find_typed(const Value& self, std::string_view name) {
  switch (self.kind()) {
    case Kind::none:
      return find_in(kNone, name);
    case Kind::boolean:
      return find_in(kBooleans, name);
    case Kind::integer:
    case Kind::floating:
      return find_in(kNumbers, name);
    case Kind::text: {
      const Builtin* method = find_string_method(name);
      return method ? method : find_in(kTexts, name);
    }
    case Kind::list:
      return find_list_method(name);
    case Kind::dict:
      return find_dict_method(name);
    default:
      return nullptr;
  }
}

// Global functions

Value run_raise_exception(Call& call) {
  throw TemplateRaised(call.positional.empty() ? "raise_exception" : to_text(call.positional[0], call.heap));
}

Value run_namespace(Call& call) {
  if (!call.positional.empty()) call.fail("takes keyword arguments only");
  Dict* result = call.heap.make_dict();
  for (const auto& [key, value] : call.named) call.heap.set(*result, call.heap.make_text(std::string(key)), value);
  return result;
}

Value run_range(Call& call) {
  call.at_most(3);
  if (call.positional.empty()) call.fail("needs a stop");
  for (const Value& part : call.positional) {
    if (!part.is(Kind::integer)) call.fail(fmt::format("expected integers, got {}", kind_name(part)));
  }
  const bool from_zero = call.positional.size() == 1;
  const std::int64_t start = from_zero ? 0 : call.positional[0].integer();
  const std::int64_t stop = call.positional[from_zero ? 0 : 1].integer();
  const std::int64_t step = call.positional.size() == 3 ? call.positional[2].integer() : 1;
  if (step == 0) call.fail("the step must not be 0");
  List* result = call.heap.make_list();
  for (std::int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<std::int64_t>(result->items.size()) == call.heap.limits.range_length) {
      call.fail(fmt::format("more than {} elements", call.heap.limits.range_length));
    }
    call.heap.append(*result, i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return result;
}

Value run_strftime_now(Call& call) {
  call.at_most(1);
  const std::string format(call.text_argument(0));
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[kDateBytes];
  const std::size_t length = std::strftime(buffer, sizeof buffer, format.c_str(), &local);
  return call.heap.make_text({buffer, length});
}

Value run_global_tojson(Call& call) {
  if (call.positional.empty()) call.fail("needs a value");
  return json_text(call, call.positional[0], 1);
}

constexpr Builtin kGlobals[] = {
    {"raise_exception", run_raise_exception}, {"namespace", run_namespace},  {"range", run_range},
    {"strftime_now", run_strftime_now},       {"tojson", run_global_tojson},
};

// What a slice of `size` elements visits, by Python's rules.
struct Steps {
  std::int64_t first, count, step;
};

Steps slice_steps(std::int64_t size, const Value* start, const Value* stop, const Value* step) {
  const auto part = [](const Value* value, std::int64_t fallback) {
    if (!value) return fallback;
    if (!value->is(Kind::integer)) throw RenderError(fmt::format("a slice takes integers, not {}", kind_name(*value)));
    return value->integer();
  };
  const std::int64_t by = part(step, 1);
  if (by == 0) throw RenderError("the step of a slice must not be 0");
  const std::int64_t lowest = by > 0 ? 0 : -1, highest = by > 0 ? size : size - 1;
  const auto bound = [&](const Value* value, std::int64_t fallback) {
    if (!value) return fallback;
    std::int64_t at = part(value, 0);
    if (at < 0) at += size;
    return std::clamp(at, lowest, highest);
  };
  const std::int64_t first = bound(start, by > 0 ? lowest : highest), last = bound(stop, by > 0 ? highest : lowest);
  const std::int64_t distance = by > 0 ? last - first : first - last;
  if (distance <= 0) return {first, 0, by};
  if (by == std::numeric_limits<std::int64_t>::min()) return {first, 1, by};
  const std::int64_t stride = by > 0 ? by : -by;
  return {first, (distance - 1) / stride + 1, by};
}

}  // namespace

const Value* Call::argument(std::size_t index, std::string_view keyword) const {
  for (const auto& [key, value] : named) {
    if (!keyword.empty() && key == keyword) return &value;
  }
  return index < positional.size() ? &positional[index] : nullptr;
}

bool Call::flag(std::size_t index, std::string_view keyword) const {
  const Value* value = argument(index, keyword);
  return value && value->truthy();
}

std::string_view Call::text_argument(std::size_t index, std::string_view keyword) const {
  const Value* value = argument(index, keyword);
  if (!value || !value->is(Kind::text)) {
    fail(fmt::format("argument {} must be a string, not {}", index + 1, value ? kind_name(*value) : "absent"));
  }
  return value->text();
}

void Call::at_most(std::size_t count) const {
  if (positional.size() > count) fail(fmt::format("takes at most {} arguments, got {}", count, positional.size()));
}

void Call::fail(const std::string& what) const {
  throw RenderError(fmt::format("{}: {}", name, what));
}

const Builtin* find_global(std::string_view name) {
  return find_in(kGlobals, name);
}

const Builtin* find_method(const Value& self, std::string_view name) {
  if (self.is(Kind::function) || (self.is(Kind::dict) && !self.dict().has_methods)) return nullptr;
  if (self.is(Kind::undefined)) return find_in(kUndefined, name);
  if (const Builtin* method = find_typed(self, name)) return method;
  if (!self.is(Kind::dict)) {
    if (const Builtin* method = find_in(kDefault, name)) return method;
  }
  return find_in(kShared, name);
}

Value run_builtin(const Builtin& builtin, Call& call) {
  if (call.self.is(Kind::text)) call.heap.work_on(call.self.text().size());
  return builtin.run(call);
}

Value run_filter(Call& call) {
  if (call.name == "selectattr") call.self.mark_array();  // also where it is about to fail
  if (const Builtin* method = find_method(call.self, call.name)) return run_builtin(*method, call);
  const bool text_filter = std::find(kTextFilters.begin(), kTextFilters.end(), call.name) != kTextFilters.end();
  if (text_filter && !call.self.is(Kind::function)) {
    call.self = run_string(call);
    return run_builtin(*find_string_method(call.name), call);
  }
  if (call.self.is(Kind::dict) && call.name == "count") return find_dict_method("length")->run(call);
  throw RenderError(fmt::format("no filter '{}' for {}", call.name, kind_name(call.self)));
}

bool contains(Heap& heap, const Value& needle, const Value& haystack) {
  switch (haystack.kind()) {
    case Kind::undefined:
      return false;
    case Kind::text:
      if (!needle.is(Kind::text)) break;
      heap.work_on_search(haystack.text().size(), needle.text().size());
      return haystack.text().find(needle.text()) != std::string_view::npos;
    case Kind::list:
      if (needle.is(Kind::undefined)) break;
      return std::any_of(haystack.list().items.begin(), haystack.list().items.end(),
                         [&](const Value& item) { return heap.equal(item, needle); });
    case Kind::dict:
      return heap.find(haystack.dict(), needle) != nullptr;
    default:
      break;
  }
  throw RenderError(fmt::format("can't look for {} in {}", kind_name(needle), kind_name(haystack)));
}

bool ordered_before(Heap& heap, const Value& a, const Value& b) {
  heap.work();
  const auto rank = [](const Value& v) {
    if (v.is_number()) return v.is(Kind::floating) && std::isnan(v.floating()) ? 0 : 1;
    return v.is(Kind::boolean) ? 2 : v.is(Kind::text) ? 3 : 4;
  };
  if (rank(a) != rank(b)) return rank(a) < rank(b);
  if (rank(a) == 1) return a.number() < b.number();
  if (rank(a) == 2) return a.boolean() < b.boolean();
  if (rank(a) != 3) return false;
  heap.work_on(std::min(a.text().size(), b.text().size()));
  return a.text() < b.text();
}

Value slice(Heap& heap, const Value& object, const Value* start, const Value* stop, const Value* step) {
  const auto visit = [](const Steps& steps, auto&& take) {
    std::int64_t at = steps.first;
    for (std::int64_t k = 0; k < steps.count; ++k, at += k < steps.count ? steps.step : 0)
      take(static_cast<std::size_t>(at));
  };
  if (object.is(Kind::text)) {
    const std::string_view text = object.text();
    std::string out;
    visit(slice_steps(static_cast<std::int64_t>(text.size()), start, stop, step),
          [&](std::size_t i) { out += text[i]; });
    return heap.make_text(std::move(out));
  }
  if (!object.is(Kind::list)) throw RenderError(fmt::format("can't slice {}", kind_name(object)));
  const auto& items = object.list().items;
  std::vector<Value> taken;
  visit(slice_steps(static_cast<std::int64_t>(items.size()), start, stop, step),
        [&](std::size_t i) { taken.push_back(items[i]); });
  return heap.make_list(std::move(taken));
}

std::int64_t to_integer(double number) {
  constexpr double kLimit = 9223372036854775808.0;  // 2^63
  return number >= -kLimit && number < kLimit ? static_cast<std::int64_t>(number)
                                              : std::numeric_limits<std::int64_t>::min();
}

}  // namespace bankml::jinja
