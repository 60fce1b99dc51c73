#include "text/template/value.hpp"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>

#include <fmt/core.h>

namespace bankml::jinja {
namespace {

// What costs about as much as evaluating a node: copying so many bytes, looking at so many keys.
constexpr std::size_t kBytesPerWorkUnit = 64, kEntriesPerWorkUnit = 8;

// bool counts as 0 or 1 when compared for equality.
bool numeric(const Value& v, double& out) {
  if (v.is(Kind::boolean))
    out = v.boolean() ? 1 : 0;
  else if (v.is_number())
    out = v.number();
  else
    return false;
  return true;
}

void check_key(const Value& key) {
  const bool tuple = key.is(Kind::list) && key.list().tuple;
  if (key.is(Kind::undefined) || key.is(Kind::dict) || key.is(Kind::function) || (key.is(Kind::list) && !tuple)) {
    throw RenderError(
        fmt::format("a dict key must be a string, number, boolean, none or tuple, not {}", kind_name(key)));
  }
}

}  // namespace

Text::Text(std::string text, Heap* heap) : owned_(std::move(text)), view_(owned_), heap_(heap) {
  if (heap_) heap_->allocate(owned_.size() + sizeof(Text));
}

Text::~Text() {
  if (heap_) heap_->release(owned_.size() + sizeof(Text));
}

bool Value::truthy() const {
  switch (kind()) {
    case Kind::undefined:
    case Kind::none:
      return false;
    case Kind::boolean:
      return boolean();
    case Kind::integer:
      return integer() != 0;
    case Kind::floating:
      return floating() != 0;
    case Kind::text:
      return !text().empty();
    case Kind::list:
      return !list().items.empty();
    case Kind::dict:
      return !dict().entries.empty();
    case Kind::function:
      return true;
  }
  return false;
}

Usage* Value::usage() const {
  if (const auto* text = std::get_if<TextPtr>(&data_)) return (*text)->usage;
  if (const auto* list = std::get_if<List*>(&data_)) return (*list)->usage;
  if (const auto* dict = std::get_if<Dict*>(&data_)) return (*dict)->usage;
  return nullptr;
}

void Value::set_usage(Usage* usage) const {
  if (const auto* text = std::get_if<TextPtr>(&data_)) (*text)->usage = usage;
  if (const auto* list = std::get_if<List*>(&data_)) (*list)->usage = usage;
  if (const auto* dict = std::get_if<Dict*>(&data_)) (*dict)->usage = usage;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [k, v] : entries) {
    if (k.is(Kind::text) && k.text() == key) return &v;
  }
  return nullptr;
}

List* Heap::make_list(std::vector<Value> items, bool tuple) {
  allocate(sizeof(List) + items.size() * sizeof(Value));
  lists_.push_back(List{std::move(items), tuple});
  return &lists_.back();
}

Dict* Heap::make_dict() {
  allocate(sizeof(Dict));
  dicts_.emplace_back();
  return &dicts_.back();
}

Function* Heap::make_function(Function function) {
  allocate(sizeof(Function));
  functions_.push_back(std::move(function));
  return &functions_.back();
}

const Scope* Heap::keep(Scope scope) {
  allocate(sizeof(Scope) + scope.size() * sizeof(Value));
  scopes_.push_back(std::move(scope));
  return &scopes_.back();
}

void Heap::append(List& list, Value value) {
  allocate(sizeof(Value));
  list.items.push_back(std::move(value));
}

void Heap::add_new(Dict& dict, Value key, Value value) {
  allocate(2 * sizeof(Value));
  dict.entries.emplace_back(std::move(key), std::move(value));
}

void Heap::set(Dict& dict, const Value& key, Value value) {
  check_key(key);
  if (const Value* present = find(dict, key)) {
    *const_cast<Value*>(present) = std::move(value);
  } else {
    add_new(dict, key, std::move(value));
  }
}

const Value* Heap::find(const Dict& dict, const Value& key) {
  if (key.is(Kind::text)) return find(dict, key.text());
  check_key(key);
  work(static_cast<std::int64_t>(dict.entries.size() / kEntriesPerWorkUnit));
  for (const auto& [k, v] : dict.entries) {
    if (equal(k, key)) return &v;
  }
  return nullptr;
}

const Value* Heap::find(const Dict& dict, std::string_view key) {
  const std::size_t entries = dict.entries.size();
  work(static_cast<std::int64_t>(entries / kEntriesPerWorkUnit + entries * (key.size() / kBytesPerWorkUnit)));
  return dict.find(key);
}

bool Heap::equal(const Value& a, const Value& b, int depth) {
  check_depth(depth);
  work();
  double x = 0, y = 0;
  if (numeric(a, x) && numeric(b, y)) {
    if (a.is(Kind::integer) && b.is(Kind::integer)) return a.integer() == b.integer();
    return x == y;
  }
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::text:
      if (a.text().size() == b.text().size()) work_on(a.text().size());
      return a.text() == b.text();
    case Kind::list: {
      const List &p = a.list(), &q = b.list();
      if (p.tuple != q.tuple || p.items.size() != q.items.size()) return false;
      for (std::size_t i = 0; i < p.items.size(); ++i) {
        if (!equal(p.items[i], q.items[i], depth + 1)) return false;
      }
      return true;
    }
    case Kind::dict: {
      const Dict &p = a.dict(), &q = b.dict();
      if (p.entries.size() != q.entries.size()) return false;
      for (const auto& [key, value] : p.entries) {
        const Value* other = find(q, key);
        if (!other || !equal(value, *other, depth + 1)) return false;
      }
      return true;
    }
    case Kind::function:
      return a.function().builtin == b.function().builtin && (a.function().builtin || &a.function() == &b.function());
    default:
      return true;  // undefined and none have one value each
  }
}

Value Heap::from_json(const boost::json::value& json, int depth) {
  check_depth(depth);
  switch (json.kind()) {
    case boost::json::kind::null:
      return None{};
    case boost::json::kind::bool_:
      return json.get_bool();
    case boost::json::kind::int64:
      return std::int64_t{json.get_int64()};
    case boost::json::kind::uint64:
      return static_cast<double>(json.get_uint64());  // above what an integer holds
    case boost::json::kind::double_:
      return json.get_double();
    case boost::json::kind::string:
      return Value::borrowed(json.get_string());
    case boost::json::kind::array: {
      List* list = make_list();
      list->items.reserve(json.get_array().size());
      for (const auto& item : json.get_array()) append(*list, from_json(item, depth + 1));
      return list;
    }
    case boost::json::kind::object: {
      Dict* dict = make_dict();
      dict->entries.reserve(json.get_object().size());
      for (const auto& member : json.get_object()) {
        add_new(*dict, Value::borrowed(member.key()), from_json(member.value(), depth + 1));
      }
      return dict;
    }
  }
  return {};
}

void Heap::allocate(std::size_t bytes) {
  memory_ += bytes;
  if (memory_ > limits.memory) {
    memory_ -= bytes;
    throw RenderError(fmt::format("the rendering needs more than {} bytes of memory", limits.memory));
  }
  work_on(bytes);
}

void Heap::loop_step() {
  if (++loop_steps_ > limits.loop_steps) {
    throw RenderError(fmt::format("the rendering needs more than {} loop steps", limits.loop_steps));
  }
}

void Heap::work(std::int64_t units) {
  work_ += units;
  if (work_ > limits.work) throw RenderError(fmt::format("the rendering needs more than {} steps", limits.work));
}

void Heap::work_on(std::size_t bytes) {
  work(static_cast<std::int64_t>(bytes / kBytesPerWorkUnit));
}

void Heap::work_on_search(std::size_t text, std::size_t pattern) {
  constexpr std::size_t kPlaces = 8, kComparisons = 16;  // looked at for a unit; of kBytesPerWorkUnit each
  work(static_cast<std::int64_t>(text / kPlaces + text / kComparisons * (pattern / kBytesPerWorkUnit)));
}

void Heap::check_depth(int depth) const {
  if (depth > limits.depth) throw RenderError(fmt::format("values nested deeper than {} levels", limits.depth));
}

std::string_view kind_name(const Value& value) {
  switch (value.kind()) {
    case Kind::undefined:
      return "undefined";
    case Kind::none:
      return "none";
    case Kind::boolean:
      return "a boolean";
    case Kind::integer:
      return "an integer";
    case Kind::floating:
      return "a float";
    case Kind::text:
      return "a string";
    case Kind::list:
      return value.list().tuple ? "a tuple" : "a list";
    case Kind::dict:
      return "a dict";
    case Kind::function:
      return "a function";
  }
  return "";
}

}  // namespace bankml::jinja
