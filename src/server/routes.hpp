#pragma once
// The handlers: functions from a request to a reply. They throw Error for what they refuse.
#include <string>

#include "bankml/server/server.hpp"
#include "server/http.hpp"
#include "server/metrics_page.hpp"

namespace bankml {

// What handlers work with; valid while the server runs.
struct RouteContext {
  const ServerOptions& options;
  const App& app;
  MetricsPage& metrics;
};

using Handler = Reply (*)(const RouteContext& context, const Request& request);

// The handler of a method and path (without prefix), nullptr if there is none.
Handler find_handler(std::string_view method, std::string_view path);

// docs/http-api.md 6
Reply get_health(const RouteContext& context, const Request& request);
Reply get_props(const RouteContext& context, const Request& request);
Reply post_props(const RouteContext& context, const Request& request);
Reply get_models(const RouteContext& context, const Request& request);
Reply get_metrics(const RouteContext& context, const Request& request);
Reply get_openapi(const RouteContext& context, const Request& request);  // docs/openapi.json
Reply get_slots(const RouteContext& context, const Request& request);
Reply get_cache(const RouteContext& context, const Request& request);  // docs/service.md
Reply post_slot_action(const RouteContext& context, const Request& request);
Reply post_tokenize(const RouteContext& context, const Request& request);
Reply post_detokenize(const RouteContext& context, const Request& request);
Reply post_apply_template(const RouteContext& context, const Request& request);
// 10, 11, 16
Reply post_completion(const RouteContext& context, const Request& request);
Reply post_openai_completion(const RouteContext& context, const Request& request);
Reply post_infill(const RouteContext& context, const Request& request);
// 12 to 15
Reply post_chat_completion(const RouteContext& context, const Request& request);
Reply post_responses(const RouteContext& context, const Request& request);
Reply post_messages(const RouteContext& context, const Request& request);
Reply post_chat_input_tokens(const RouteContext& context, const Request& request);
Reply post_responses_input_tokens(const RouteContext& context, const Request& request);
Reply post_messages_count_tokens(const RouteContext& context, const Request& request);

}  // namespace bankml
