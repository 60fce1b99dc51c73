// The generating endpoints and those that share their bodies (docs/http-api.md 7 to 13).
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "server/completion_request.hpp"
#include "server/fields.hpp"
#include "server/generation_reply.hpp"
#include "server/prompt.hpp"
#include "server/routes.hpp"
#include "server/shapes.hpp"

namespace bankml {
namespace {

constexpr std::size_t kIdLength = 32;
constexpr int kDefaultTopLogprobs = 20;

// One task for each copy of each prompt. Copies draw from seeds that follow the requested one.
std::vector<GenerationTask> make_tasks(std::vector<TokenIds> prompts, const CompletionRequest& request) {
  std::vector<std::shared_ptr<const CompletionParams>> params;
  for (int copy = 0; copy < request.copies; ++copy) {
    CompletionParams own = request.params;
    own.keep_probabilities = !request.stream;
    if (own.sampling.seed != kRandomSeed) own.sampling.seed += static_cast<std::uint32_t>(copy);
    params.push_back(std::make_shared<const CompletionParams>(std::move(own)));
  }
  std::vector<GenerationTask> tasks;
  tasks.reserve(prompts.size() * params.size());
  for (TokenIds& prompt : prompts) {
    for (const auto& own : params) tasks.push_back({prompt, own});
  }
  return tasks;
}

Reply generate(const RouteContext& context, CompletionRequest request, std::vector<TokenIds> prompts,
               MakeFormat make_format) {
  Generation generation;
  generation.tasks = make_tasks(std::move(prompts), request);
  generation.request = std::move(request);
  generation.tokenizer = context.app.tokenizer;
  generation.model = context.app.model.id;
  generation.id = "chatcmpl-" + random_id(kIdLength);
  generation.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return make_generation_reply(*context.app.engine, std::move(generation), make_format);
}

CompletionRequest parse_request(const RouteContext& context, const boost::json::object& body) {
  return parse_completion_request(body, context.options, *context.app.tokenizer, context.app.engine->slot_count());
}

Reply complete(const RouteContext& context, const Request& request, MakeFormat make_format) {
  const boost::json::object body = parse_body(request.body);
  std::vector<TokenIds> prompts = parse_prompts(Fields(body).find("prompt"), *context.app.tokenizer);
  return generate(context, parse_request(context, body), std::move(prompts), make_format);
}

[[noreturn]] void throw_invalid(std::string message) {
  throw Error(ErrorKind::invalid_request, std::move(message));
}

// Tools and their choice: checked as llama-server does, refused where calls would have to be parsed from the answer.
void check_tools(const Fields& fields) {
  static constexpr std::array<std::string_view, 3> kChoices = {"auto", "none", "required"};
  std::string choice = "auto";
  if (const auto* value = fields.find("tool_choice"); value != nullptr && value->is_string()) {
    choice = value->get_string();
    if (std::ranges::find(kChoices, choice) == kChoices.end()) {
      throw_invalid(fmt::format("field 'tool_choice': expected auto, none or required, got '{}'", choice));
    }
  }
  const auto* tools = fields.find("tools");
  if (tools == nullptr) return;
  if (!tools->is_array()) {
    throw Error(ErrorKind::internal, fmt::format("field 'tools': expected an array, got {}", json_type_name(*tools)));
  }
  if (!tools->get_array().empty() && choice != "none") {
    throw Error(ErrorKind::unsupported, "field 'tools': tool calls are not supported; use \"tool_choice\": \"none\"");
  }
}

void check_response_format(const Fields& fields) {
  const auto* format = fields.find("response_format");
  if (format == nullptr || !format->is_object()) return;
  std::string type;
  Fields(format->get_object()).read("type", type);
  if (type.empty() || type == "text") return;
  if (type == "json_object" || type == "json_schema") {
    throw Error(ErrorKind::unsupported, fmt::format("field 'response_format': type '{}' is not supported", type));
  }
  throw_invalid(fmt::format("field 'response_format': expected type text, json_object or json_schema, got '{}'", type));
}

// OpenAI's `logprobs: true, top_logprobs: n` as the number of alternatives.
void read_chat_logprobs(const Fields& fields, CompletionParams& params) {
  const auto* logprobs = fields.find("logprobs");
  const auto* top = fields.find("top_logprobs");
  if (logprobs == nullptr || !logprobs->is_bool() || !logprobs->get_bool()) {
    if (top != nullptr) throw_invalid("field 'top_logprobs': needs \"logprobs\": true");
    return;
  }
  params.n_probs = kDefaultTopLogprobs;
  if (top != nullptr && top->is_number()) Fields(fields).read_clamped({"top_logprobs"}, params.n_probs);
}

struct ChatRequest {
  CompletionRequest completion;
  TokenIds prompt;
};

ChatRequest parse_chat(const RouteContext& context, const boost::json::object& body) {
  const Fields fields(body);
  check_tools(fields);
  RenderedPrompt rendered = context.app.chat_template->render(body);
  check_response_format(fields);

  ChatRequest chat;
  chat.completion = parse_request(context, body);
  read_chat_logprobs(fields, chat.completion.params);
  const auto* explicit_continue = fields.find("continue_final_message");
  const bool continues =
      explicit_continue != nullptr && !(explicit_continue->is_bool() && !explicit_continue->get_bool());
  bool echo = false;
  fields.read("echo", echo);
  chat.completion.streams_prefill = !continues || echo;
  chat.completion.prefill = std::move(rendered.prefill);
  chat.completion.echoed.generation_prompt = std::move(rendered.generation_prompt);
  chat.prompt = context.app.tokenizer->encode(rendered.text, true, true);
  chat.completion.params.user_messages =
      find_user_messages(chat.prompt, context.app.chat_template->user_marker(), *context.app.tokenizer);
  return chat;
}

}  // namespace

Reply post_completion(const RouteContext& context, const Request& request) {
  return complete(context, request, make_native_format);
}

Reply post_openai_completion(const RouteContext& context, const Request& request) {
  return complete(context, request, make_completions_format);
}

Reply post_chat_completion(const RouteContext& context, const Request& request) {
  ChatRequest chat = parse_chat(context, parse_body(request.body));
  return generate(context, std::move(chat.completion), {std::move(chat.prompt)}, make_chat_format);
}

Reply post_chat_input_tokens(const RouteContext& context, const Request& request) {
  const ChatRequest chat = parse_chat(context, parse_body(request.body));
  return json_response(boost::json::object{{"input_tokens", chat.prompt.size()}, {"object", "response.input_tokens"}});
}

Reply post_apply_template(const RouteContext& context, const Request& request) {
  const RenderedPrompt rendered = context.app.chat_template->render(parse_body(request.body));
  return json_response(boost::json::object{{"prompt", rendered.text}});
}

}  // namespace bankml
