// The endpoints that complete a prompt as it is (docs/http-api.md 7 to 11 and 16).
#include <utility>

#include "server/completion_request.hpp"
#include "server/fields.hpp"
#include "server/generation_reply.hpp"
#include "server/infill.hpp"
#include "server/prompt.hpp"
#include "server/routes.hpp"

namespace bankml {
namespace {

CompletionRequest parse_request(const RouteContext& context, const boost::json::object& body) {
  return parse_completion_request(body, context.options, *context.app.tokenizer, context.app.engine->slot_count());
}

Reply complete(const RouteContext& context, const Request& request, MakeFormat make_format) {
  const boost::json::object body = parse_body(request.body);
  std::vector<TokenIds> prompts = parse_prompts(Fields(body).find("prompt"), *context.app.tokenizer);
  return generate(context.app, parse_request(context, body), std::move(prompts), make_format);
}

}  // namespace

Reply post_completion(const RouteContext& context, const Request& request) {
  return complete(context, request, make_native_format);
}

Reply post_openai_completion(const RouteContext& context, const Request& request) {
  return complete(context, request, make_completions_format);
}

Reply post_infill(const RouteContext& context, const Request& request) {
  check_can_infill(*context.app.tokenizer);
  const boost::json::object body = parse_body(request.body);
  const InfillText text = parse_infill(body);
  CompletionRequest completion = parse_request(context, body);
  completion.params.is_infill = true;
  const InfillLimits limits{.batch = context.options.batch,
                            .context = context.app.engine->slot_context(),
                            .n_predict = context.options.defaults.n_predict};
  TokenIds prompt = infill_prompt(text, *context.app.tokenizer, limits, context.options.suffix_first_infill);
  std::vector<TokenIds> prompts;
  prompts.push_back(std::move(prompt));
  return generate(context.app, std::move(completion), std::move(prompts), make_native_format);
}

}  // namespace bankml
