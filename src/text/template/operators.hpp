#pragma once
#include <optional>

#include "text/template/ast.hpp"

namespace bankml::jinja {

// a op b, but for concatenation with a string, which the interpreter does in place.
Value binary(Heap& heap, Operator op, const Value& a, const Value& b);

// object[index] of data; absent where the object has no such element. Methods are the interpreter's business.
std::optional<Value> element(Heap& heap, const Value& object, const Value& index);
// object.name of data; undefined where there is none.
Value member(Heap& heap, const Value& object, std::string_view name);

}  // namespace bankml::jinja
