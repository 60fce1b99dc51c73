// The chat endpoints of all APIs and what counts or shows their prompts (docs/http-api.md 12 to 15).
#include <boost/json/object.hpp>
#include <utility>

#include "server/chat_request.hpp"
#include "server/fields.hpp"
#include "server/generation_reply.hpp"
#include "server/routes.hpp"

namespace bankml {
namespace {

Reply answer(const RouteContext& context, const boost::json::object& chat_body, MakeFormat make_format) {
  ChatRequest chat = parse_chat_request(context, chat_body);
  std::vector<TokenIds> prompts;
  prompts.push_back(std::move(chat.prompt));
  return generate(context.app, std::move(chat.completion), std::move(prompts), make_format);
}

std::size_t count_tokens(const RouteContext& context, const boost::json::object& chat_body) {
  return context.app.tokenizer->encode(render_chat(context.app, chat_body).text, true, true).size();
}

Reply openai_count(std::size_t tokens) {
  return json_response(boost::json::object{{"input_tokens", tokens}, {"object", "response.input_tokens"}});
}

}  // namespace

Reply post_chat_completion(const RouteContext& context, const Request& request) {
  return answer(context, parse_body(request.body), make_chat_format);
}

Reply post_responses(const RouteContext& context, const Request& request) {
  return answer(context, chat_body_of_responses(parse_body(request.body)), make_responses_format);
}

Reply post_messages(const RouteContext& context, const Request& request) {
  return answer(context, chat_body_of_messages(parse_body(request.body)), make_messages_format);
}

Reply post_chat_input_tokens(const RouteContext& context, const Request& request) {
  return openai_count(count_tokens(context, parse_body(request.body)));
}

Reply post_responses_input_tokens(const RouteContext& context, const Request& request) {
  return openai_count(count_tokens(context, chat_body_of_responses(parse_body(request.body))));
}

Reply post_messages_count_tokens(const RouteContext& context, const Request& request) {
  const std::size_t tokens = count_tokens(context, chat_body_of_messages(parse_body(request.body)));
  return json_response(boost::json::object{{"input_tokens", tokens}});
}

Reply post_apply_template(const RouteContext& context, const Request& request) {
  return json_response(boost::json::object{{"prompt", render_chat(context.app, parse_body(request.body)).text}});
}

}  // namespace bankml
