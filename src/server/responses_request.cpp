// Bodies of /v1/responses as chat bodies (docs/http-api.md 14).
#include <fmt/core.h>

#include <array>
#include <boost/json/array.hpp>
#include <initializer_list>
#include <string_view>

#include "server/chat_request.hpp"
#include "server/fields.hpp"

namespace bankml {
namespace {

namespace json = boost::json;

[[noreturn]] void throw_invalid(std::string message) {
  throw Error(ErrorKind::invalid_request, std::move(message));
}

std::string_view text(const json::object& object, std::string_view name) {
  const auto* value = Fields(object).find(name);
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

bool has_text(const json::object& object, std::string_view name) {
  const auto* value = Fields(object).find(name);
  return value != nullptr && value->is_string();
}

bool is_text_or_array(const json::value* value) {
  return value != nullptr && (value->is_string() || value->is_array());
}

json::object text_part(const json::object& part, std::string_view name) {
  if (!has_text(part, name)) throw_invalid(fmt::format("field 'input': a content part lacks its text '{}'", name));
  return {{"type", "text"}, {"text", *part.if_contains(name)}};
}

json::object user_part(const json::value& value) {
  const json::object none;
  const json::object& part = value.is_object() ? value.get_object() : none;
  const std::string_view type = text(part, "type");
  if (type == "input_text") return text_part(part, "text");
  if (type == "input_image") {
    if (!has_text(part, "image_url")) throw_invalid("field 'input': an input_image part lacks 'image_url'");
    return {{"type", "image_url"}, {"image_url", {{"url", *part.if_contains("image_url")}}}};
  }
  if (type == "input_file") throw_invalid("field 'input': content parts of type input_file are not supported");
  throw_invalid(fmt::format("field 'input': expected content parts of type input_text or input_image, got '{}'", type));
}

json::object assistant_part(const json::value& value) {
  const json::object none;
  const json::object& part = value.is_object() ? value.get_object() : none;
  const std::string_view type = text(part, "type");
  if (type == "output_text") return text_part(part, "text");
  if (type == "refusal") return text_part(part, "refusal");
  throw_invalid(fmt::format(
      "field 'input': expected content parts of the assistant of type output_text or refusal, got '{}'", type));
}

using PartReader = json::object (*)(const json::value& part);

// A text, or its parts in the form that chats have.
json::value content(const json::value& value, PartReader reader) {
  if (!value.is_array()) return value;
  json::array parts;
  for (const auto& part : value.get_array()) parts.push_back(reader(part));
  return parts;
}

// Puts the messages of a chat together from items. What the assistant did in one turn comes as several items.
class MessageList {
 public:
  void add(const json::value& value) {
    if (value.is_object() && add_item(value.get_object())) return;
    throw_invalid(
        "field 'input': expected messages and items of type function_call, function_call_output or reasoning");
  }
  void add_message(std::string_view role, json::value message_content) {
    messages_.push_back(
        json::object{{"role", json::string_view(role.data(), role.size())}, {"content", std::move(message_content)}});
  }
  json::array take() && { return std::move(messages_); }

 private:
  bool add_item(const json::object& item) {
    const std::string_view type = text(item, "type"), role = text(item, "role");
    const auto* item_content = Fields(item).find("content");
    if (type.empty() || type == "message") {
      if (!is_text_or_array(item_content)) return false;
      if (role == "user" || role == "system" || role == "developer") {
        add_message(role, content(*item_content, user_part));
        return true;
      }
      // Without a type it is no output item.
      if (role != "assistant" || type.empty()) return false;
      add_answer(content(*item_content, assistant_part));
      return true;
    }
    if (type == "function_call") return add_call(item);
    if (type == "function_call_output") return add_call_output(item);
    if (type == "reasoning") return add_reasoning(item_content);
    return false;
  }

  json::object& assistant() {
    if (messages_.empty() || text(messages_.back().get_object(), "role") != "assistant") {
      messages_.push_back(json::object{{"role", "assistant"}});
    }
    return messages_.back().get_object();
  }

  void add_answer(json::value answer) {
    json::object& message = assistant();
    json::value* present = message.if_contains("content");
    if (present == nullptr || (present->is_string() && present->get_string().empty())) {
      message["content"] = std::move(answer);
      return;
    }
    json::array parts;
    for (json::value* half : {present, &answer}) {
      if (half->is_array()) {
        for (auto& part : half->get_array()) parts.push_back(std::move(part));
      } else {
        parts.push_back(json::object{{"type", "text"}, {"text", std::move(*half)}});
      }
    }
    *present = std::move(parts);
  }

  bool add_call(const json::object& item) {
    if (!has_text(item, "call_id") || !has_text(item, "name") || !has_text(item, "arguments")) return false;
    json::value& calls = assistant()["tool_calls"];
    if (!calls.is_array()) calls.emplace_array();
    calls.get_array().push_back(json::object{
        {"id", *item.if_contains("call_id")},
        {"type", "function"},
        {"function", {{"name", *item.if_contains("name")}, {"arguments", *item.if_contains("arguments")}}}});
    return true;
  }

  bool add_call_output(const json::object& item) {
    const auto* output = Fields(item).find("output");
    if (!has_text(item, "call_id") || !is_text_or_array(output)) return false;
    messages_.push_back(json::object{
        {"role", "tool"}, {"content", content(*output, user_part)}, {"tool_call_id", *item.if_contains("call_id")}});
    return true;
  }

  bool add_reasoning(const json::value* item_content) {
    if (item_content != nullptr && !item_content->is_array()) return false;
    std::string reasoning;
    if (item_content != nullptr) {
      for (const auto& part : item_content->get_array()) {
        if (part.is_object()) reasoning += text(part.get_object(), "text");
      }
    }
    json::object& message = assistant();
    message["reasoning_content"] = std::move(reasoning);
    if (!message.contains("content")) message["content"] = "";
    return true;
  }

  json::array messages_;
};

// {"type": "function", "name", ...} as {"type": "function", "function": {"name", ...}}; other tools are the peer's
// own and left out.
json::array chat_tools(const json::value& tools) {
  if (!tools.is_array()) {
    throw_invalid(fmt::format("field 'tools': expected an array of objects, got {}", json_type_name(tools)));
  }
  json::array out;
  for (const auto& tool : tools.get_array()) {
    if (!tool.is_object() || text(tool.get_object(), "type") != "function") continue;
    json::object function = tool.get_object();
    function.erase("type");
    if (!function.contains("strict")) function["strict"] = true;
    out.push_back(json::object{{"type", "function"}, {"function", std::move(function)}});
  }
  return out;
}

}  // namespace

json::object chat_body_of_responses(const json::object& body) {
  const Fields fields(body);
  if (!text(body, "previous_response_id").empty()) {
    throw_invalid("field 'previous_response_id': responses are not kept; send the whole conversation as 'input'");
  }
  const auto* input = body.if_contains("input");
  if (input == nullptr) throw_invalid("field 'input' is required");
  if (!is_text_or_array(input)) {
    throw_invalid(fmt::format("field 'input': expected a string or an array of items, got {}", json_type_name(*input)));
  }
  MessageList messages;
  if (fields.find("instructions") != nullptr) {
    messages.add_message("system", json::string(text(body, "instructions")));
  }
  if (input->is_string()) {
    messages.add_message("user", *input);
  } else {
    for (const auto& item : input->get_array()) messages.add(item);
  }

  json::object chat = body;
  for (const char* name :
       {"input", "instructions", "previous_response_id", "reasoning", "tools", "max_output_tokens"}) {
    chat.erase(name);
  }
  chat["messages"] = std::move(messages).take();
  if (const auto* tools = fields.find("tools")) chat["tools"] = chat_tools(*tools);
  if (const auto* limit = fields.find("max_output_tokens")) chat["max_tokens"] = *limit;
  if (const auto* reasoning = fields.find("reasoning"); reasoning != nullptr && reasoning->is_object()) {
    if (const auto* effort = Fields(reasoning->get_object()).find("effort")) chat["reasoning_effort"] = *effort;
  }
  return chat;
}

}  // namespace bankml
