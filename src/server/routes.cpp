#include "server/routes.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/json/array.hpp>

#include "server/fields.hpp"

namespace bankml {
namespace {

// Routes of the contract that clients may try although they aren't built: a clear refusal is better than "not found".
Reply refuse(const RouteContext&, const Request& request) {
  throw Error(ErrorKind::unsupported,
              fmt::format("{} {} is not supported by this server", request.method, request.path));
}

// Features that this server never has, with the answer that llama-server gives while they are off.
Reply refuse_disabled(const RouteContext&, const Request&) {
  return json_response({{"error", {{"message", "this feature is off"}, {"type", "feature_disabled"}}}}, 403);
}

// No adapters can be loaded, so none is all that can be set.
Reply list_no_adapters(const RouteContext&, const Request&) {
  return json_response(boost::json::array());
}
Reply set_no_adapters(const RouteContext& context, const Request& request) {
  const boost::json::value body = parse_json(request.body);
  if (!body.is_array()) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("expected an array of objects with 'id' and 'scale', got {}", json_type_name(body)));
  }
  if (!body.get_array().empty()) return refuse(context, request);
  return json_response(boost::json::object{{"success", true}});
}

struct Route {
  std::string_view method, path;
  Handler handler;
};

constexpr std::array kRoutes = std::to_array<Route>({
    {"GET", "/health", get_health},
    {"GET", "/v1/health", get_health},
    {"GET", "/props", get_props},
    {"POST", "/props", post_props},
    {"GET", "/models", get_models},
    {"GET", "/v1/models", get_models},
    {"GET", "/metrics", get_metrics},
    {"GET", "/openapi.json", get_openapi},
    {"GET", "/slots", get_slots},
    {"GET", "/cache", get_cache},
    {"POST", "/tokenize", post_tokenize},
    {"POST", "/detokenize", post_detokenize},
    {"POST", "/apply-template", post_apply_template},
    {"POST", "/completion", post_completion},
    {"POST", "/completions", post_completion},
    {"POST", "/v1/completions", post_openai_completion},
    {"POST", "/v1/chat/completions", post_chat_completion},
    {"POST", "/chat/completions", post_chat_completion},
    {"POST", "/v1/chat/completions/input_tokens", post_chat_input_tokens},
    {"POST", "/chat/completions/input_tokens", post_chat_input_tokens},
    {"POST", "/v1/responses/input_tokens", post_responses_input_tokens},
    {"POST", "/responses/input_tokens", post_responses_input_tokens},
    {"POST", "/v1/messages/count_tokens", post_messages_count_tokens},
    {"POST", "/v1/responses", post_responses},
    {"POST", "/responses", post_responses},
    {"POST", "/v1/messages", post_messages},
    {"POST", "/infill", post_infill},
    {"POST", "/embedding", refuse},
    {"POST", "/embeddings", refuse},
    {"POST", "/v1/embeddings", refuse},
    {"POST", "/rerank", refuse},
    {"POST", "/reranking", refuse},
    {"POST", "/v1/rerank", refuse},
    {"POST", "/v1/reranking", refuse},
    {"GET", "/lora-adapters", list_no_adapters},
    {"POST", "/lora-adapters", set_no_adapters},
    {"POST", "/v1/chat/completions/control", refuse},
    {"GET", "/v1/stream", refuse},
    {"DELETE", "/v1/stream", refuse},
    {"POST", "/v1/streams/lookup", refuse},
    {"POST", "/v1/audio/transcriptions", refuse},
    {"POST", "/audio/transcriptions", refuse},
    {"GET", "/cors-proxy", refuse_disabled},
    {"POST", "/cors-proxy", refuse_disabled},
    {"GET", "/tools", refuse_disabled},
    {"POST", "/tools", refuse_disabled},
});

}  // namespace

Handler find_handler(std::string_view method, std::string_view path) {
  const auto* const route = std::ranges::find_if(
      kRoutes, [&](const Route& candidate) { return candidate.method == method && candidate.path == path; });
  if (route != kRoutes.end()) return route->handler;
  if (method == "POST" && path.starts_with("/slots/")) {
    // A slash after the id is taken along, as llama-server does.
    const std::size_t slash = path.find('/', std::string_view("/slots/").size());
    if (slash == std::string_view::npos || slash + 1 == path.size()) return post_slot_action;
  }
  return nullptr;
}

}  // namespace bankml
