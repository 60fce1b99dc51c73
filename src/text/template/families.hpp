#pragma once
// Families of templates that llama-server treats in ways of their own, known by marks in their sources
// (docs/chat-templates.md section 2.5).
#include <array>
#include <string_view>

namespace bankml::jinja {

// How the template reads the reasoning of a message, beside its member reasoning_content.
enum class ReasoningForm {
  member,                 // only there
  thinking,               // also as the member `thinking`
  thinking_before_calls,  // the same; in front of calls it stands in place of the content
  part                    // as a part of the content, of the type "thinking"
};

struct Family {
  std::array<std::string_view, 4> marks;              // all of them are in the source; unused ones are ""
  std::string_view absent = {};                       // and this one is not, unless it is ""
  std::string_view think_start = {}, think_end = {};  // around reasoning; both "": as trial renderings show
  ReasoningForm reasoning = ReasoningForm::member;
  bool trims_content = false;  // messages lose the white space around them
  bool keeps_developer_role = false;
  bool refuses_as_internal = false;  // a failing template is an error of the server, not of the request
};

// The family of a template; for most one without any properties.
const Family& find_family(std::string_view source);

}  // namespace bankml::jinja
