#include "server/chat_request.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>
#include <boost/json/serialize.hpp>

#include "base/printable.hpp"
#include "server/fields.hpp"
#include "server/prompt.hpp"

namespace bankml {
namespace {

constexpr int kDefaultTopLogprobs = 20;

[[noreturn]] void throw_invalid(std::string message) {
  throw Error(ErrorKind::invalid_request, std::move(message));
}
[[noreturn]] void throw_unsupported(std::string message) {
  throw Error(ErrorKind::unsupported, std::move(message));
}

// "" unless the field is a string: llama-server ignores other types here.
std::string_view text_or_empty(const Fields& fields, std::string_view name) {
  const auto* value = fields.find(name);
  if (value == nullptr || !value->is_string()) return {};
  return {value->get_string().data(), value->get_string().size()};
}

bool has_tools(const Fields& fields) {
  const auto* tools = fields.find("tools");
  return tools != nullptr && tools->is_array() && !tools->get_array().empty();
}

bool is_true(const Fields& fields, std::string_view name) {
  const auto* value = fields.find(name);
  return value != nullptr && value->is_bool() && value->get_bool();
}

bool is_schema_type(const boost::json::value& type) {
  static constexpr std::array<std::string_view, 7> kTypes = {"string", "number", "integer", "boolean",
                                                             "array",  "object", "null"};
  if (const auto* several = type.if_array()) return std::ranges::all_of(*several, is_schema_type);
  const auto* name = type.if_string();
  return name != nullptr && std::ranges::find(kTypes, std::string_view(*name)) != kTypes.end();
}

// A schema that none can be: its outermost level is looked at, and its members are not.
void check_schema(const Fields& holder) {
  const auto* schema = holder.find("schema");
  if (schema == nullptr) return;
  if (!schema->is_object()) {
    throw_invalid(
        fmt::format("field 'response_format': expected an object as schema, got {}", json_type_name(*schema)));
  }
  const auto* type = Fields(schema->get_object()).find("type");
  if (type != nullptr && !is_schema_type(*type)) {
    throw_invalid(fmt::format("field 'response_format': expected a type of JSON Schema in the schema, got {}",
                              printable(boost::json::serialize(*type))));
  }
}

// The type of output that is asked for, "" if any text will do.
std::string_view response_format(const Fields& fields) {
  const auto* format = fields.find("response_format");
  if (format == nullptr || !format->is_object()) return {};
  const std::string_view type = text_or_empty(Fields(format->get_object()), "type");
  if (type.empty() || type == "text") return {};
  if (type != "json_object" && type != "json_schema") {
    throw_invalid(
        fmt::format("field 'response_format': expected type text, json_object or json_schema, got '{}'", type));
  }
  check_schema(Fields(format->get_object()));
  if (const auto* named = Fields(format->get_object()).find("json_schema"); named != nullptr && named->is_object()) {
    check_schema(Fields(named->get_object()));
  }
  return type;
}

// What llama-server looks at before it renders the template.
void check_before_template(const Fields& fields, bool builtin_format) {
  if (const auto* format = fields.find("reasoning_format")) {
    if (!format->is_string() || !is_reasoning_format(text_or_empty(fields, "reasoning_format"))) {
      throw Error(ErrorKind::internal,
                  "field 'reasoning_format': expected none, auto, deepseek or deepseek-legacy as a string");
    }
  }
  const std::string_view tool_choice = text_or_empty(fields, "tool_choice");
  if (builtin_format && (has_tools(fields) || (!tool_choice.empty() && tool_choice != "auto"))) {
    throw Error(ErrorKind::internal, "fields 'tools' and 'tool_choice': only templates know them, which need --jinja");
  }
  static constexpr std::array<std::string_view, 3> kChoices = {"auto", "none", "required"};
  const auto* choice = fields.find("tool_choice");
  if (choice != nullptr && choice->is_string() && std::ranges::find(kChoices, tool_choice) == kChoices.end()) {
    throw_invalid(fmt::format("field 'tool_choice': expected auto, none or required, got '{}'", tool_choice));
  }
  if (fields.find("json_schema") != nullptr && !text_or_empty(fields, "grammar").empty()) {
    throw Error(ErrorKind::internal, "fields 'json_schema' and 'grammar' can't be used together");
  }
  response_format(fields);
}

void check_after_template(const Fields& fields) {
  const bool logprobs = fields.find("logprobs") != nullptr && is_true(fields, "logprobs");
  if (has_tools(fields)) {
    if (!text_or_empty(fields, "grammar").empty())
      throw_invalid("field 'grammar': can't be used together with 'tools'");
    if (logprobs && is_true(fields, "stream")) {
      throw_invalid("field 'logprobs': can't be used together with 'tools' in a stream");
    }
  }
  if (!logprobs && fields.find("top_logprobs") != nullptr) {
    throw_invalid("field 'top_logprobs': needs \"logprobs\": true");
  }
}

// What would need a grammar, or calls to be parsed from the answer.
void refuse_unsupported(const Fields& fields) {
  if (has_tools(fields) && text_or_empty(fields, "tool_choice") != "none") {
    throw_unsupported("field 'tools': tool calls are not supported; use \"tool_choice\": \"none\"");
  }
  if (const std::string_view type = response_format(fields); !type.empty()) {
    throw_unsupported(fmt::format("field 'response_format': type '{}' is not supported", type));
  }
}

// OpenAI's `logprobs: true, top_logprobs: n` as the number of alternatives.
void read_chat_logprobs(const Fields& fields, CompletionParams& params) {
  if (!is_true(fields, "logprobs")) return;
  params.n_probs = kDefaultTopLogprobs;
  const auto* top = fields.find("top_logprobs");
  if (top != nullptr && top->is_number()) fields.read_clamped({"top_logprobs"}, params.n_probs);
}

// Without tags in the template nothing is counted, so that any budget holds.
void refuse_budget(const Fields& fields, const ThinkTags& think) {
  if (think.end.empty()) return;
  for (const std::string_view name : {"reasoning_budget_tokens", "thinking_budget_tokens"}) {
    int budget = -1;
    fields.read_checked({name}, budget, -1);
    if (budget >= 0) throw_unsupported(fmt::format("field '{}': thinking is not cut off; expected -1", name));
  }
}

}  // namespace

RenderedPrompt render_chat(const App& app, const boost::json::object& body) {
  const Fields fields(body);
  check_before_template(fields, app.chat_template->is_builtin());
  RenderedPrompt rendered = app.chat_template->render(body);
  check_after_template(fields);
  return rendered;
}

ChatRequest parse_chat_request(const RouteContext& context, const boost::json::object& body) {
  const Fields fields(body);
  RenderedPrompt rendered = render_chat(context.app, body);
  refuse_unsupported(fields);

  ChatRequest chat;
  chat.completion =
      parse_completion_request(body, context.options, *context.app.tokenizer, context.app.engine->slot_count());
  read_chat_logprobs(fields, chat.completion.params);
  const auto* continues = fields.find("continue_final_message");
  const bool asked_to_continue = continues != nullptr && !(continues->is_bool() && !continues->get_bool());
  chat.completion.streams_prefill = !asked_to_continue || is_true(fields, "echo");
  chat.completion.prefill = std::move(rendered.prefill);
  chat.completion.echoed.generation_prompt = std::move(rendered.generation_prompt) + chat.completion.prefill;
  refuse_budget(fields, rendered.think);
  chat.completion.think = std::move(rendered.think);
  if (context.options.skip_chat_parsing) {
    chat.completion.thinking = Thinking::unparsed;
  } else if (chat.completion.echoed.reasoning_format == "none") {
    chat.completion.thinking = Thinking::aloud;
  }
  if (!context.app.chat_template->is_builtin()) chat.completion.echoed.chat_format = kChatFormatOfTemplates;
  chat.prompt = context.app.tokenizer->encode(rendered.text, true, true);
  chat.completion.params.user_messages =
      find_user_messages(chat.prompt, context.app.chat_template->user_marker(), *context.app.tokenizer);
  return chat;
}

}  // namespace bankml
