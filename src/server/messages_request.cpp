// Bodies of /v1/messages as chat bodies (docs/http-api.md 15).
#include <fmt/core.h>

#include <boost/json/array.hpp>
#include <string_view>

#include "server/chat_request.hpp"
#include "server/fields.hpp"
#include "server/json_writer.hpp"

namespace bankml {
namespace {

namespace json = boost::json;

constexpr int kDefaultMaxTokens = 4096;

// The first line of some clients' system prompts. A stamp in it changes with each request and would make all that
// follows differ from what is cached.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";
constexpr std::string_view kStamp = "cch=";
constexpr std::string_view kNeutralStamp = "fffff";

std::string_view text(const json::object& object, std::string_view name) {
  const auto* value = Fields(object).find(name);
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

json::value member(const json::object& object, std::string_view name, json::value otherwise) {
  const auto* value = Fields(object).find(name);
  return value == nullptr ? std::move(otherwise) : *value;
}

std::string without_stamp(std::string_view system) {
  std::string out(system);
  if (!system.starts_with(kBillingHeader)) return out;
  const std::size_t at = out.find(kStamp);
  if (at == std::string::npos) return out;
  const std::size_t start = at + kStamp.size(), end = start + kNeutralStamp.size();
  if (end < out.size() && out[end] == ';') out.replace(start, kNeutralStamp.size(), kNeutralStamp);
  return out;
}

// A string, or the texts of all blocks in a row.
std::string system_text(const json::value& system) {
  if (const auto* whole = system.if_string()) return without_stamp({whole->data(), whole->size()});
  std::string out;
  if (!system.is_array()) return out;
  for (const auto& block : system.get_array()) {
    if (block.is_object() && text(block.get_object(), "type") == "text") {
      out += without_stamp(text(block.get_object(), "text"));
    }
  }
  return out;
}

// Text and image blocks as parts of a chat message. Blocks of other types have no counterpart.
void append_part(const json::object& block, json::array& parts) {
  const std::string_view type = text(block, "type");
  if (type == "text") {
    json::object part{{"type", "text"}};
    if (const auto* value = Fields(block).find("text")) part["text"] = *value;
    parts.push_back(std::move(part));
  } else if (type == "image") {
    const auto* source = Fields(block).find("source");
    if (source != nullptr && source->is_object()) {
      parts.push_back(json::object{{"type", "image_url"}, {"image_url", *source}});
    }
  }
}

json::object tool_result(const json::object& block) {
  json::value content = "";
  if (const auto* value = Fields(block).find("content")) {
    if (value->is_string()) content = *value;
    if (const auto* blocks = value->if_array()) {
      json::array parts;
      for (const auto& inner : *blocks) {
        if (inner.is_object()) append_part(inner.get_object(), parts);
      }
      content = std::move(parts);
    }
  }
  return {{"role", "tool"}, {"tool_call_id", member(block, "tool_use_id", "")}, {"content", std::move(content)}};
}

json::object tool_call(const json::object& block) {
  return {{"id", member(block, "id", "")},
          {"type", "function"},
          {"function",
           {{"name", member(block, "name", "")}, {"arguments", to_json(member(block, "input", json::object()))}}}};
}

// One message of blocks: what is said first, then the results of tools as messages of their own.
void append_blocks(const json::object& message, const json::array& blocks, json::array& messages) {
  json::array parts, calls, results;
  std::string reasoning;
  for (const auto& value : blocks) {
    if (!value.is_object()) continue;
    const json::object& block = value.get_object();
    const std::string_view type = text(block, "type");
    if (type == "tool_use") {
      calls.push_back(tool_call(block));
    } else if (type == "tool_result") {
      results.push_back(tool_result(block));
    } else if (type == "thinking") {
      reasoning += text(block, "thinking");
    } else {
      append_part(block, parts);
    }
  }
  if (!parts.empty() || !calls.empty() || !reasoning.empty()) {
    json::object out{{"role", member(message, "role", nullptr)}};
    out["content"] = parts.empty() ? json::value("") : json::value(std::move(parts));
    if (!calls.empty()) out["tool_calls"] = std::move(calls);
    if (!reasoning.empty()) out["reasoning_content"] = std::move(reasoning);
    messages.push_back(std::move(out));
  }
  for (auto& result : results) messages.push_back(std::move(result));
}

json::array chat_messages(const json::object& body) {
  const auto* given = body.if_contains("messages");
  if (given == nullptr) throw Error(ErrorKind::internal, "field 'messages' is required");
  if (!given->is_array() && !given->is_null()) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("field 'messages': expected an array, got {}", json_type_name(*given)));
  }
  json::array messages;
  if (const auto* system = Fields(body).find("system")) {
    messages.push_back(json::object{{"role", "system"}, {"content", system_text(*system)}});
  }
  if (!given->is_array()) return messages;
  for (const auto& value : given->get_array()) {
    const json::object* message = value.if_object();
    const auto* content = message == nullptr ? nullptr : Fields(*message).find("content");
    if (content != nullptr && content->is_array()) {
      append_blocks(*message, content->get_array(), messages);
    } else {
      messages.push_back(value);  // a text, or a fault that the chat's own checks name
    }
  }
  return messages;
}

json::array chat_tools(const json::array& tools) {
  json::array out;
  for (const auto& value : tools) {
    const json::object none;
    const json::object& tool = value.is_object() ? value.get_object() : none;
    out.push_back(json::object{{"type", "function"},
                               {"function",
                                {{"name", member(tool, "name", "")},
                                 {"description", member(tool, "description", "")},
                                 {"parameters", member(tool, "input_schema", json::object())}}}});
  }
  return out;
}

}  // namespace

json::object chat_body_of_messages(const json::object& body) {
  const Fields fields(body);
  json::object chat{{"messages", chat_messages(body)}};
  chat["max_tokens"] = body.contains("max_tokens") ? body.at("max_tokens") : json::value(kDefaultMaxTokens);
  if (const auto* stop = fields.find("stop_sequences")) chat["stop"] = *stop;
  for (const char* name : {"temperature", "top_p", "top_k", "stream", "chat_template_kwargs"}) {
    if (const auto* value = fields.find(name)) chat[name] = *value;
  }
  if (const auto* tools = fields.find("tools"); tools != nullptr && tools->is_array()) {
    chat["tools"] = chat_tools(tools->get_array());
  }
  if (const auto* choice = fields.find("tool_choice"); choice != nullptr && choice->is_object()) {
    const std::string_view type = text(choice->get_object(), "type");
    if (type == "any" || type == "tool") chat["tool_choice"] = "required";
    if (type == "none") chat["tool_choice"] = "none";
  }
  return chat;
}

}  // namespace bankml
