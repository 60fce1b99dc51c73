#include "text/template/messages.hpp"

#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>

#include <fmt/core.h>

#include <utility>

#include "bankml/base/error.hpp"

namespace bankml::jinja {
namespace {

namespace json = boost::json;

[[noreturn]] void reject(const std::string& what) {
  throw Error(ErrorKind::invalid_request, what);
}
// The peer answers 500 to what its second look at the messages finds.
[[noreturn]] void fail(const std::string& what) {
  throw Error(ErrorKind::internal, what);
}

std::string_view kind_of(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
    default:
      return "a number";
  }
}

const json::value* find(const json::value& object, std::string_view key) {
  return object.is_object() ? object.get_object().if_contains(key) : nullptr;
}

// First look: the shape of messages and what kinds of input they hold.

void check_part(const json::value& part) {
  const json::value* type = find(part, "type");
  const std::string_view name = type && type->is_string() ? std::string_view(type->get_string()) : std::string_view();
  if (name == "text") return;
  if (name == "image_url") fail("image input is not supported");
  if (name == "input_audio") fail("audio input is not supported");
  if (name == "input_video" || name == "video_url") fail("video input is not supported");
  reject("a content part must have the type \"text\"");
}

void check_message(const json::value& message) {
  const json::value* role = find(message, "role");
  const bool assistant = role && role->is_string() && role->get_string() == "assistant";
  const json::value* content = find(message, "content");
  if (!content) {
    if (!assistant) reject("a message that is not the assistant's must have content");
    if (!find(message, "tool_calls")) reject("an assistant message must have content or tool_calls");
    return;
  }
  if (content->is_string() || content->is_null()) return;
  if (!content->is_array())
    reject(fmt::format("content must be a string, null or an array of parts, not {}", kind_of(*content)));
  for (const json::value& part : content->get_array()) check_part(part);
}

// Second look: the members that the template sees.

std::string_view text_member(const json::value& object, std::string_view key, std::string_view where) {
  const json::value* value = find(object, key);
  if (!value) fail(fmt::format("{} lacks '{}'", where, key));
  if (!value->is_string()) fail(fmt::format("'{}' of {} must be a string, not {}", key, where, kind_of(*value)));
  return value->get_string();
}

std::string_view optional_text(const json::value& object, std::string_view key, std::string_view where) {
  return find(object, key) ? text_member(object, key, where) : std::string_view();
}

// Compact JSON with floats in their shortest form.
void dump(const json::value& value, std::string& out) {
  if (value.is_double()) {
    const std::string text = fmt::format("{}", value.get_double());
    out += text;
    if (text.find_first_not_of("-0123456789") == std::string::npos) out += ".0";
  } else if (value.is_array()) {
    out += '[';
    bool first = true;
    for (const json::value& item : value.get_array()) {
      if (!std::exchange(first, false)) out += ',';
      dump(item, out);
    }
    out += ']';
  } else if (value.is_object()) {
    out += '{';
    bool first = true;
    for (const auto& [key, item] : value.get_object()) {
      if (!std::exchange(first, false)) out += ',';
      out += json::serialize(json::string_view(key)) + ':';
      dump(item, out);
    }
    out += '}';
  } else {
    out += json::serialize(value);
  }
}

std::vector<ToolCall> read_tool_calls(const json::value& calls) {
  std::vector<ToolCall> result;
  if (calls.is_null()) return result;
  if (!calls.is_array()) fail(fmt::format("tool_calls must be an array, not {}", kind_of(calls)));
  for (const json::value& call : calls.get_array()) {
    if (text_member(call, "type", "a tool call") != "function") fail("the type of a tool call must be \"function\"");
    const json::value* function = find(call, "function");
    if (!function) fail("a tool call lacks 'function'");
    ToolCall read{text_member(*function, "name", "a tool call"), optional_text(call, "id", "a tool call"), {}, {}};
    const json::value* arguments = find(*function, "arguments");
    if (!arguments) fail("a tool call lacks 'arguments'");
    if (arguments->is_string()) {
      read.arguments = arguments->get_string();
    } else {
      dump(*arguments, read.arguments);
    }
    result.push_back(std::move(read));
  }
  return result;
}

std::string joined_parts(const json::array& parts, std::string_view separator) {
  std::string text;
  bool first = true;
  for (const json::value& part : parts) {
    if (!std::exchange(first, false)) text += separator;
    text += text_member(part, "text", "a content part");
  }
  return text;
}

Message read_message(const json::value& source, std::deque<std::string>& texts) {
  Message message;
  message.role = text_member(source, "role", "a message");
  if (const json::value* content = find(source, "content")) {
    if (content->is_string()) message.text = content->get_string();
    if (content->is_array() && !content->get_array().empty()) {
      message.parts = &content->get_array();
      message.text = texts.emplace_back(joined_parts(*message.parts, "\n"));
    }
  }
  message.reasoning = optional_text(source, "reasoning_content", "a message");
  message.name = optional_text(source, "name", "a message");
  message.tool_call_id = optional_text(source, "tool_call_id", "a message");
  if (const json::value* calls = find(source, "tool_calls")) message.tool_calls = read_tool_calls(*calls);
  return message;
}

std::vector<Tool> read_tools(const json::value& tools) {
  std::vector<Tool> result;
  if (tools.is_null()) return result;
  if (!tools.is_array()) fail(fmt::format("tools must be an array, not {}", kind_of(tools)));
  for (const json::value& tool : tools.get_array()) {
    if (text_member(tool, "type", "a tool") != "function") fail("the type of a tool must be \"function\"");
    const json::value* function = find(tool, "function");
    if (!function) fail("a tool lacks 'function'");
    result.push_back({text_member(*function, "name", "a tool"), optional_text(*function, "description", "a tool"),
                      find(*function, "parameters")});
  }
  return result;
}

bool flag(const json::object& request, std::string_view key, bool fallback) {
  const json::value* value = request.if_contains(key);
  return value && value->is_bool() ? value->get_bool() : fallback;
}

Continuation read_continuation(const json::object& request) {
  const json::value* value = request.if_contains("continue_final_message");
  if (!value) return Continuation::none;
  if (value->is_bool()) return value->get_bool() ? Continuation::whole : Continuation::none;
  if (!value->is_string()) return Continuation::none;
  if (value->get_string() == "content") return Continuation::content;
  if (value->get_string() == "reasoning_content") return Continuation::reasoning;
  return Continuation::none;
}

void settle_continuation(ChatRequest& chat, bool prefill_assistant) {
  auto& messages = chat.messages;
  if (chat.continuation != Continuation::none && chat.add_generation_prompt) {
    reject("add_generation_prompt and continue_final_message can't both be true");
  }
  const auto assistant_at = [&](std::size_t from_end) {
    return messages.size() >= from_end && messages[messages.size() - from_end].role == "assistant";
  };
  if (prefill_assistant && assistant_at(1)) {
    if (assistant_at(2)) reject("the last two messages can't both be the assistant's");
    if (chat.continuation == Continuation::none) chat.continuation = Continuation::whole;
  }
  if (chat.continuation == Continuation::none || messages.empty()) return;
  if (!messages.back().tool_calls.empty()) reject("an assistant message with tool calls can't be continued");
  chat.add_generation_prompt = false;
  chat.continued = std::move(messages.back());
  messages.pop_back();
  chat.continued_text = chat.continued->text;
  if (chat.continued->parts)
    chat.continued_text = chat.texts.emplace_back(joined_parts(*chat.continued->parts, "\n\n"));
}

// A part of content: its type is also the name of the member that holds its text.
Value typed_part(Heap& heap, std::string_view type, std::string_view text) {
  Dict* part = heap.make_dict();
  heap.add_new(*part, Value::borrowed("type"), Value::borrowed(type));
  heap.add_new(*part, Value::borrowed(type), Value::borrowed(text));
  return part;
}

Value text_part(Heap& heap, std::string_view text) {
  return typed_part(heap, "text", text);
}

Value content_value(Heap& heap, const Message& message, const TemplateCaps& caps, ReasoningForm reasoning) {
  List* parts = nullptr;
  if (!message.reasoning.empty() && reasoning == ReasoningForm::part) {
    parts = heap.make_list();
    heap.append(*parts, typed_part(heap, "thinking", message.reasoning));
    if (!message.text.empty()) heap.append(*parts, text_part(heap, message.text));
    return parts;
  }
  if (!message.reasoning.empty() && reasoning == ReasoningForm::thinking_before_calls && !message.tool_calls.empty())
    return Value::borrowed("");
  if (message.parts && caps.typed_content) {
    parts = heap.make_list();
    for (const json::value& part : *message.parts) {
      heap.append(*parts, text_part(heap, text_member(part, "text", "a content part")));
    }
  } else if (!caps.string_content) {
    parts = heap.make_list();
    heap.append(*parts, text_part(heap, message.text));
  }
  return parts ? Value(parts) : Value::borrowed(message.text);
}

Value tool_calls_value(Heap& heap, const std::vector<ToolCall>& calls, bool as_objects) {
  List* list = heap.make_list();
  for (const ToolCall& call : calls) {
    Dict* function = heap.make_dict();
    heap.add_new(*function, Value::borrowed("name"), Value::borrowed(call.name));
    heap.add_new(*function, Value::borrowed("arguments"),
                 as_objects ? heap.from_json(call.object) : Value::borrowed(call.arguments));
    Dict* entry = heap.make_dict();
    heap.add_new(*entry, Value::borrowed("type"), Value::borrowed("function"));
    heap.add_new(*entry, Value::borrowed("function"), function);
    if (!call.id.empty()) heap.add_new(*entry, Value::borrowed("id"), Value::borrowed(call.id));
    heap.append(*list, entry);
  }
  return list;
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t start = text.find_first_not_of(kSpace);
  if (start == std::string_view::npos) return {};
  return text.substr(start, text.find_last_not_of(kSpace) - start + 1);
}

ChatRequest read_chat_request(const json::object& request, bool prefill_assistant) {
  const json::value* messages = request.if_contains("messages");
  if (!messages) reject("'messages' is required");
  if (!messages->is_array()) reject(fmt::format("'messages' must be an array, not {}", kind_of(*messages)));
  for (const json::value& message : messages->get_array()) check_message(message);

  ChatRequest chat;
  chat.messages.reserve(messages->get_array().size());
  for (const json::value& message : messages->get_array()) chat.messages.push_back(read_message(message, chat.texts));
  if (const json::value* tools = request.if_contains("tools")) chat.tools = read_tools(*tools);
  chat.add_generation_prompt = flag(request, "add_generation_prompt", true);
  chat.continuation = read_continuation(request);
  settle_continuation(chat, prefill_assistant);
  return chat;
}

void adapt_messages(ChatRequest& chat, const TemplateCaps& caps, const Family& family) {
  auto& messages = chat.messages;
  for (Message& message : messages) {
    if (message.role == "developer" && !family.keeps_developer_role) message.role = "system";
    if (family.trims_content) message.text = trimmed(message.text);
  }
  if (!caps.system_role && !messages.empty() && messages[0].role == "system") {
    if (messages.size() > 1) {
      messages[1].text = chat.texts.emplace_back(fmt::format("{}\n{}", messages[0].text, messages[1].text));
      messages[1].parts = nullptr;
    }
    messages.erase(messages.begin());
  }
  if (!caps.object_arguments) return;
  json::parse_options options;
  options.max_depth = static_cast<std::size_t>(Limits().depth);
  for (Message& message : messages) {
    for (ToolCall& call : message.tool_calls) {
      boost::system::error_code error;
      call.object = json::parse(call.arguments, error, {}, options);
      if (error) fail(fmt::format("the arguments of a call of {} are no JSON: {}", call.name, error.message()));
    }
  }
}

Value messages_value(Heap& heap, const std::vector<Message>& messages, const TemplateCaps& caps,
                     ReasoningForm reasoning) {
  List* list = heap.make_list();
  for (const Message& message : messages) {
    Dict* entry = heap.make_dict();
    const auto add_text = [&](std::string_view key, std::string_view text) {
      if (!text.empty()) heap.add_new(*entry, Value::borrowed(key), Value::borrowed(text));
    };
    heap.add_new(*entry, Value::borrowed("role"), Value::borrowed(message.role));
    heap.add_new(*entry, Value::borrowed("content"), content_value(heap, message, caps, reasoning));
    add_text("reasoning_content", message.reasoning);
    if (reasoning == ReasoningForm::thinking || reasoning == ReasoningForm::thinking_before_calls)
      add_text("thinking", message.reasoning);
    add_text("name", message.name);
    add_text("tool_call_id", message.tool_call_id);
    if (!message.tool_calls.empty()) {
      heap.add_new(*entry, Value::borrowed("tool_calls"),
                   tool_calls_value(heap, message.tool_calls, caps.object_arguments));
    }
    heap.append(*list, entry);
  }
  return list;
}

Value tools_value(Heap& heap, const std::vector<Tool>& tools) {
  List* list = heap.make_list();
  for (const Tool& tool : tools) {
    Dict* function = heap.make_dict();
    heap.add_new(*function, Value::borrowed("name"), Value::borrowed(tool.name));
    heap.add_new(*function, Value::borrowed("description"), Value::borrowed(tool.description));
    heap.add_new(*function, Value::borrowed("parameters"),
                 tool.parameters ? heap.from_json(*tool.parameters) : heap.make_dict());
    Dict* entry = heap.make_dict();
    heap.add_new(*entry, Value::borrowed("type"), Value::borrowed("function"));
    heap.add_new(*entry, Value::borrowed("function"), function);
    heap.append(*list, entry);
  }
  return list;
}

}  // namespace bankml::jinja
