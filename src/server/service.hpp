#pragma once
// From a request to its reply: life cycle, keys, prefix and routing, in the order of docs/http-api.md 2 and 3.
#include <atomic>
#include <memory>

#include "server/connections.hpp"
#include "server/metered_service.hpp"
#include "server/policy.hpp"
#include "server/routes.hpp"

namespace bankml {

// Any thread may call.
class Service {
 public:
  explicit Service(ServerOptions options);

  void set_ready(App app);
  void serve_without_model() noexcept { without_model_ = true; }
  const ServerOptions& options() const noexcept { return options_; }

  std::shared_ptr<const ServerPolicy> policy() const { return policy_.get(); }
  void reload(ServerPolicy policy) { policy_.set(std::move(policy)); }

  ConnectionCounter& connections() noexcept { return connections_; }
  BodyCounter& bodies() noexcept { return bodies_; }
  Activity& activity() noexcept { return activity_; }

  // Never throws: what goes wrong is an answer, too.
  Reply handle(const Request& request);
  // What every answer to a request with this `Origin` carries.
  Headers cors_headers(std::string_view origin) const;

 private:
  Reply route(const Request& request);
  Access access(const Request& request) const;
  bool is_of_foreign_page(const Request& request) const;

  ServerOptions options_;  // written before the model is ready, then constant
  PolicyStore policy_;
  ConnectionCounter connections_;
  BodyCounter bodies_;
  Activity activity_;
  MetricsPage metrics_;
  std::unique_ptr<MeteredService> metered_;
  std::unique_ptr<const App> app_storage_;
  std::atomic<const App*> app_ = nullptr;
  std::atomic<bool> without_model_ = false;
};

}  // namespace bankml
