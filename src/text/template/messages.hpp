#pragma once
// The body of a chat request, checked in the peer's order and brought into the form that templates see
// (docs/chat-templates.md sections 2.1 and 2.2).
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/text/chat_template.hpp"
#include "text/template/families.hpp"
#include "text/template/value.hpp"

namespace bankml::jinja {

struct ToolCall {
  std::string_view name, id;
  std::string arguments;      // JSON text
  boost::json::value object;  // the same parsed, for templates that read members
};

// Views lead into the request or into ChatRequest::texts.
struct Message {
  std::string_view role;
  std::string_view text;                      // the content, parts joined by newlines
  const boost::json::array* parts = nullptr;  // the content as it came, if it was a non-empty list
  std::string_view reasoning, name, tool_call_id;
  std::vector<ToolCall> tool_calls;
};

struct Tool {
  std::string_view name, description;
  const boost::json::value* parameters = nullptr;  // null: an empty object
};

// How the last message is continued instead of answered.
enum class Continuation { none, whole, content, reasoning };

struct ChatRequest {
  std::vector<Message> messages;
  std::vector<Tool> tools;
  std::deque<std::string> texts;  // what had to be put together
  bool add_generation_prompt = true;
  Continuation continuation = Continuation::none;
  std::optional<Message> continued;  // the last message, taken off `messages`
  std::string_view continued_text;   // its content, parts joined by empty lines
};

// Without the white space around it.
std::string_view trimmed(std::string_view text);

// `request` outlives the result. Error(invalid_request) or Error(internal) as http-api.md section 12 says.
ChatRequest read_chat_request(const boost::json::object& request, bool prefill_assistant);

// What the template needs done to the messages before it sees them: developer role, white space, system merge,
// arguments as objects. Error(internal) for tool arguments that are no JSON.
void adapt_messages(ChatRequest& chat, const TemplateCaps& caps, const Family& family);

// The values of `messages` and `tools`; both arguments outlive the rendering.
Value messages_value(Heap& heap, const std::vector<Message>& messages, const TemplateCaps& caps,
                     ReasoningForm reasoning = ReasoningForm::member);
Value tools_value(Heap& heap, const std::vector<Tool>& tools);

}  // namespace bankml::jinja
