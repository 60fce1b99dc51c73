#include "server/service.hpp"

#include <algorithm>
#include <array>
#include <boost/url/parse.hpp>
#include <utility>

#include "bankml/base/log.hpp"
#include "server/errors.hpp"
#include "server/page.hpp"

namespace bankml {
namespace {

// Takes the same time wherever the first difference is.
bool equal_in_constant_time(std::string_view a, std::string_view b) noexcept {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference |= static_cast<unsigned char>(a[i] ^ other);
  }
  return difference == 0;
}

bool is_local_origin(std::string_view origin) {
  static constexpr std::array<std::string_view, 3> kHosts = {"localhost", "127.0.0.1", "[::1]"};
  const auto url = boost::urls::parse_uri(origin);
  return url && std::ranges::find(kHosts, std::string_view(url->encoded_host())) != kHosts.end();
}

}  // namespace

void Service::set_ready(App app) {
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

bool Service::authorized(const Request& request) const {
  constexpr std::string_view kBearer = "Bearer ";
  static constexpr std::array<std::string_view, 2> kPublic = {"/health", "/v1/health"};
  if (options_.api_keys.empty() || is_page(request.path) ||
      std::ranges::find(kPublic, request.path) != kPublic.end()) {
    return true;
  }
  std::string_view given = request.header("Authorization");
  if (given.empty()) given = request.header("X-Api-Key");
  if (given.starts_with(kBearer)) given.remove_prefix(kBearer.size());
  bool found = false;
  for (const std::string& key : options_.api_keys) found |= equal_in_constant_time(given, key);
  return found;
}

Reply Service::handle(const Request& request) {
  try {
    return route(request);
  } catch (...) {
    Response response = current_exception_response();
    // The message may repeat what the client sent.
    constexpr std::size_t kLogged = 300;
    log_info("{} {}: {} {}", request.method, std::string_view(request.path).substr(0, kLogged), response.status,
             std::string_view(response.body).substr(0, kLogged));
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
  const bool wants_page = options_.ui && prefixed && method == "GET" && is_page(path);

  const App* app = app_.load(std::memory_order_acquire);
  if (app == nullptr && !wants_page) throw Error(ErrorKind::busy, "the model is loading");
  if (!authorized(request)) {
    return json_response(
        {{"error", {{"code", 401}, {"message", "the API key is missing or wrong"}, {"type", "authentication_error"}}}},
        401);
  }
  if (wants_page) return page_response(path, request);
  const Handler handler = prefixed ? find_handler(method, path) : nullptr;
  if (handler == nullptr) throw Error(ErrorKind::not_found, "there is nothing at this path for this method");
  return handler({options_, *app, metrics_}, request);
}

}  // namespace bankml
