#pragma once
#include <string>

#include "bankml/text/chat_template.hpp"
#include "text/template/ast.hpp"

namespace bankml::jinja {

// What the template can do, by trial renderings with values that record how they are used (docs/chat-templates.md 2.2).
// A trial that fails counts as far as it got.
TemplateCaps probe_capabilities(const Program& program, const Limits& limits);

// What a user's message that is alone puts before its text; "" if the template can't render that.
std::string probe_user_prefix(const Program& program, const Limits& limits);

}  // namespace bankml::jinja
