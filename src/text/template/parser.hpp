#pragma once
#include <string_view>

#include "text/template/ast.hpp"

namespace bankml::jinja {

// Compiles a template. Names of filters, tests and functions are resolved when reached, as the peer does.
// Throws Error(invalid_request): with line and column for bad syntax and for nesting beyond limits.depth, and for a
// source longer than limits.source.
Program parse(std::string_view source, const Limits& limits = {});

}  // namespace bankml::jinja
