#include "server/service.hpp"

#include <algorithm>
#include <array>
#include <boost/url/parse.hpp>
#include <utility>

#include "bankml/base/log.hpp"
#include "server/errors.hpp"
#include "server/page.hpp"
#include "server/request_head.hpp"
#include "server/static_files.hpp"

namespace bankml {
namespace {

Response refusal(int status, std::string_view type, std::string_view message) {
  return json_response({{"error", {{"code", status}, {"message", message}, {"type", type}}}}, status);
}

bool is_health(std::string_view path) noexcept {
  return path == "/health" || path == "/v1/health";
}

bool is_local_origin(std::string_view origin) {
  static constexpr std::array<std::string_view, 3> kHosts = {"localhost", "127.0.0.1", "[::1]"};
  const auto url = boost::urls::parse_uri(origin);
  return url && std::ranges::find(kHosts, std::string_view(url->encoded_host())) != kHosts.end();
}

// What a server without a model has to say about itself.
Response answer_without_model(std::string_view method, std::string_view path) {
  if (method == "GET" && is_health(path)) return json_response({{"status", "ok"}});
  if (method == "GET" && (path == "/models" || path == "/v1/models")) {
    const boost::json::array none;
    return json_response({{"models", none}, {"object", "list"}, {"data", none}});
  }
  throw Error(ErrorKind::busy, "there is no model: the server was started without one (flag -m)");
}

}  // namespace

Service::Service(ServerOptions options)
    : options_(std::move(options)),
      policy_(options_.policy),
      metrics_({.connections = [this] { return connections_.open(); },
                .refused_connections = [this] { return connections_.refusals(); }}) {}

void Service::set_ready(App app) {
  if (app.defaults) options_.defaults = *app.defaults;
  metered_ = std::make_unique<MeteredService>(*app.engine, metrics_.requests(), policy_);
  app.engine = metered_.get();
  app_storage_ = std::make_unique<const App>(std::move(app));
  app_.store(app_storage_.get(), std::memory_order_release);
}

Headers Service::cors_headers(std::string_view origin) const {
  constexpr const char* kName = "Access-Control-Allow-Origin";
  if (options_.cors_origins == "localhost") {
    if (!is_local_origin(origin)) return {};
    return {{kName, std::string(origin)}};
  }
  // Credentials are not allowed together with a plain "*".
  if (options_.cors_origins == "*" && options_.cors_credentials) return {{kName, std::string(origin)}};
  return {{kName, options_.cors_origins}};
}

// Browsers send what a form could send without asking first, and only keep the answer from the page. They tell in a
// header that no page can set where the page is from.
bool Service::is_of_foreign_page(const Request& request) const {
  if (options_.cors_origins == "*" || request.header("Sec-Fetch-Site") != "cross-site") return false;
  const std::string_view origin = request.header("Origin");
  return options_.cors_origins == "localhost" ? !is_local_origin(origin) : origin != options_.cors_origins;
}

Access Service::access(const Request& request) const {
  const Access access = access_of(request, *policy_.get());
  const bool is_public =
      is_health(request.path) || request.path == "/" || (options_.static_path.empty() && is_page(request.path));
  return access == Access::refused && is_public ? Access::user : access;
}

Reply Service::handle(const Request& request) {
  try {
    return route(request);
  } catch (...) {
    Response response = current_exception_response();
    // Pollers that wait for the model are no news.
    if (response.status == 503 && is_health(request.path)) return response;
    // The message may repeat what the client sent.
    log_info("request {}: {} {}: {} {}", request.id, request.method, printable_start(request.path), response.status,
             printable_start(response.body));
    return response;
  }
}

Reply Service::route(const Request& request) {
  if (request.method == "OPTIONS") {
    return Response{.status = 200,
                    .content_type = "text/html",
                    .body = {},
                    .headers = {{"Access-Control-Allow-Credentials", options_.cors_credentials ? "true" : "false"},
                                {"Access-Control-Allow-Methods", options_.cors_methods},
                                {"Access-Control-Allow-Headers", options_.cors_headers}}};
  }
  const bool prefixed = request.path.starts_with(options_.api_prefix);
  const std::string_view path = std::string_view(request.path).substr(prefixed ? options_.api_prefix.size() : 0);
  const std::string_view method = request.method == "HEAD" ? "GET" : std::string_view(request.method);
  const bool reads = prefixed && method == "GET";
  const bool wants_file = reads && !options_.static_path.empty();
  const bool wants_page = reads && !wants_file && options_.ui && is_page(path);

  const App* app = app_.load(std::memory_order_acquire);
  if (app == nullptr && !wants_page && !without_model_) throw Error(ErrorKind::busy, "the model is loading");
  const Access allowed = access(request);
  if (allowed == Access::refused) return refusal(401, "authentication_error", "the API key is missing or wrong");
  if (allowed != Access::admin && needs_admin(method, path)) {
    return refusal(403, "permission_error", "this needs an admin key");
  }
  if (method != "GET" && is_of_foreign_page(request)) {
    return refusal(403, "permission_error", "pages of other sites may not call this server (--cors-origins)");
  }
  if (wants_page) return page_response(path, request);
  if (wants_file) {
    if (auto file = static_file(options_.static_path, path, request)) return std::move(*file);
  }
  const Handler handler = prefixed ? find_handler(method, path) : nullptr;
  if (handler == nullptr) throw Error(ErrorKind::not_found, "there is nothing at this path for this method");
  if (app == nullptr) return answer_without_model(method, path);
  return handler({options_, *app, metrics_}, request);
}

}  // namespace bankml
