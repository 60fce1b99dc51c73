#pragma once
// The chat formats that are built in, for use without the templates of models (--no-jinja): docs/chat-templates.md 1.
#include <string_view>

namespace bankml::jinja {

// The template of a built-in format: `text` is its name, or a template that its marks tell to be of that format.
// "" if there is none.
std::string_view find_named_format(std::string_view text) noexcept;

}  // namespace bankml::jinja
