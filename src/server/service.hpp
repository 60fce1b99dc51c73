#pragma once
// From a request to its reply: life cycle, keys, prefix and routing, in the order of docs/http-api.md 2 and 3.
#include <atomic>
#include <memory>

#include "server/routes.hpp"

namespace bankml {

// Any thread may call.
class Service {
 public:
  explicit Service(ServerOptions options) : options_(std::move(options)) {}

  void set_ready(App app);
  const ServerOptions& options() const noexcept { return options_; }

  // Never throws: what goes wrong is an answer, too.
  Reply handle(const Request& request);
  // What every answer to a request with this `Origin` carries.
  Headers cors_headers(std::string_view origin) const;

 private:
  Reply route(const Request& request);
  bool authorized(const Request& request) const;

  const ServerOptions options_;
  MetricsPage metrics_;
  std::unique_ptr<const App> app_storage_;
  std::atomic<const App*> app_ = nullptr;
};

}  // namespace bankml
