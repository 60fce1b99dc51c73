#pragma once
// Three ways in which values become text: printed by {{ }}, as Python-like text, as JSON (docs/chat-templates.md 3.4
// and 3.5).
#include <optional>
#include <string>

#include "text/template/value.hpp"

namespace bankml::jinja {

// What {{ value }} prints: a list prints its elements one after the other, dicts and functions print nothing.
void append_printed(const Value& value, std::string& out, Heap& heap);

// What ~, + with a string and |string give: Python-like for lists and dicts.
// Whether a trial rendering takes the elements for read: |string does, concatenation does not.
enum class Reading { shallow, deep };
void append_text(const Value& value, std::string& out, Heap& heap, Reading reading = Reading::shallow);
std::string to_text(const Value& value, Heap& heap);
std::string to_short_text(double number);  // six significant digits: in JSON and for |string

struct JsonStyle {
  bool ascii = false;                  // everything else as \uXXXX
  std::optional<std::int64_t> indent;  // spaces per level; absent: one line
  std::string item_separator = ", ", key_separator = ": ";
};
void append_json(const Value& value, const JsonStyle& style, std::string& out, Heap& heap);

}  // namespace bankml::jinja
