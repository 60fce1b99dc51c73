#pragma once
// Values of a template: docs/chat-templates.md section 3.4. Text is shared and immutable; lists, dicts and functions
// are shared by reference and live in the Heap of one rendering, so that cycles need no care.
#include <boost/json/value.hpp>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/template/limits.hpp"

namespace bankml::jinja {

class Heap;
struct List;
struct Dict;
struct Function;

// Ends a rendering; becomes bankml::Error at its end, with the line of the statement.
class RenderError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};
// The template's own raise_exception(): the text goes to the client as it is.
class TemplateRaised : public RenderError {
 public:
  using RenderError::RenderError;
};

// What a trial rendering wants to know of a value (section 2.2).
struct Usage {
  bool read = false;             // reached by a member, a subscript, a name, tojson or |string
  bool used_as_array = false;    // iterated, indexed or given to selectattr
  bool asked_if_string = false;  // tested with `is string`
};

class Text {
 public:
  Text(std::string text, Heap* heap);                            // counted by `heap` while alive, if there is one
  explicit Text(std::string_view borrowed) : view_(borrowed) {}  // the bytes outlive the rendering
  ~Text();
  Text(const Text&) = delete;
  Text& operator=(const Text&) = delete;

  std::string_view view() const noexcept { return view_; }
  mutable Usage* usage = nullptr;

 private:
  std::string owned_;
  std::string_view view_;
  Heap* heap_ = nullptr;
};
using TextPtr = std::shared_ptr<const Text>;

struct Undefined {};
struct None {};

enum class Kind { undefined, none, boolean, integer, floating, text, list, dict, function };

class Value {
 public:
  Value() = default;
  Value(None none) : data_(none) {}
  Value(bool boolean) : data_(boolean) {}
  Value(std::int64_t integer) : data_(integer) {}
  Value(double floating) : data_(floating) {}
  Value(TextPtr text) : data_(std::move(text)) {}
  Value(List* list) : data_(list) {}
  Value(Dict* dict) : data_(dict) {}
  Value(Function* function) : data_(function) {}
  template <class T>
  Value(T) = delete;  // no silent conversions: a pointer must not become a boolean

  // A literal or another text that no rendering owns.
  static Value literal(std::string text) { return Value(std::make_shared<const Text>(std::move(text), nullptr)); }
  static Value borrowed(std::string_view text) { return Value(std::make_shared<const Text>(text)); }

  Kind kind() const noexcept { return static_cast<Kind>(data_.index()); }
  bool is(Kind k) const noexcept { return kind() == k; }
  bool is_number() const noexcept { return is(Kind::integer) || is(Kind::floating); }

  bool boolean() const { return std::get<bool>(data_); }
  std::int64_t integer() const { return std::get<std::int64_t>(data_); }
  double floating() const { return std::get<double>(data_); }
  double number() const { return is(Kind::integer) ? static_cast<double>(integer()) : floating(); }  // of is_number()
  std::string_view text() const { return std::get<TextPtr>(data_)->view(); }
  List& list() const { return *std::get<List*>(data_); }
  Dict& dict() const { return *std::get<Dict*>(data_); }
  Function& function() const { return *std::get<Function*>(data_); }

  bool truthy() const;
  Usage* usage() const;
  void set_usage(Usage* usage) const;
  // Tells a trial rendering that the template reached this value.
  void mark_read() const {
    if (Usage* u = usage()) u->read = true;
  }
  void mark_array() const {
    if (Usage* u = usage()) u->used_as_array = true;
  }

 private:
  std::variant<Undefined, None, bool, std::int64_t, double, TextPtr, List*, Dict*, Function*> data_;
};

struct List {
  std::vector<Value> items;
  bool tuple = false;  // prints in parentheses and may be a dict key
  Usage* usage = nullptr;
};

// Insertion order. Look-up is linear: the dicts of chat templates have a handful of keys.
struct Dict {
  std::vector<std::pair<Value, Value>> entries;
  bool has_methods = true;  // false for `loop`, whose length is a key
  Usage* usage = nullptr;

  const Value* find(std::string_view key) const;
};

struct Macro;
struct CallBlock;
struct Builtin;
using Scope = std::vector<Value>;  // by the slots of the program's names

struct Function {
  const Builtin* builtin = nullptr;  // a global function or a method bound to `self`
  Value self;
  const Macro* macro = nullptr;
  const CallBlock* call_block = nullptr;  // caller(): runs in a copy of the scope where the block stands
  const Scope* scope = nullptr;
};

// Owns what one rendering makes and counts it.
class Heap {
 public:
  explicit Heap(const Limits& bounds) : limits(bounds) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;

  List* make_list(std::vector<Value> items = {}, bool tuple = false);
  Dict* make_dict();
  Function* make_function(Function function);
  const Scope* keep(Scope scope);
  Value make_text(std::string text) { return Value(std::make_shared<const Text>(std::move(text), this)); }

  void append(List& list, Value value);
  // Replaces or adds. A key is a text, number, boolean, none or tuple of such: anything else is an error.
  void set(Dict& dict, const Value& key, Value value);
  void add_new(Dict& dict, Value key, Value value);  // for keys known to be new
  const Value* find(const Dict& dict, const Value& key);
  const Value* find(const Dict& dict, std::string_view key);
  bool equal(const Value& a, const Value& b, int depth = 0);

  // Texts of the JSON are borrowed: `json` outlives the rendering.
  Value from_json(const boost::json::value& json, int depth = 0);

  void allocate(std::size_t bytes);
  void release(std::size_t bytes) noexcept { memory_ -= bytes; }
  void loop_step();
  void work(std::int64_t units = 1);
  void work_on(std::size_t bytes);  // reading or copying them
  // Looking for `pattern` bytes in `text` bytes, at worst: every place differs at the pattern's end only.
  void work_on_search(std::size_t text, std::size_t pattern);
  void check_depth(int depth) const;

  const Limits limits;

 private:
  std::size_t memory_ = 0;
  std::int64_t loop_steps_ = 0, work_ = 0;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Function> functions_;
  std::deque<Scope> scopes_;
};

// Counts memory that no value holds: what an expression, a call or a block keeps while it runs. Nesting multiplies it.
class Held {
 public:
  explicit Held(Heap& heap, std::size_t bytes = 0) : heap_(&heap) { add(bytes); }
  Held(Held&& other) noexcept : heap_(other.heap_), bytes_(std::exchange(other.bytes_, 0)) {}
  Held& operator=(Held&&) = delete;
  ~Held() { heap_->release(bytes_); }

  void add(std::size_t bytes) {
    heap_->allocate(bytes);
    bytes_ += bytes;
  }
  void grow_to(std::size_t bytes) {
    if (bytes > bytes_) add(bytes - bytes_);
  }

 private:
  Heap* heap_;
  std::size_t bytes_ = 0;
};

std::string_view kind_name(const Value& value);

}  // namespace bankml::jinja
