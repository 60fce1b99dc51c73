#pragma once
// What may change while the server runs: keys and limits. Requests take the policy that holds when they come.
#include <memory>
#include <mutex>
#include <utility>

#include "bankml/server/server.hpp"
#include "server/http.hpp"

namespace bankml {

class PolicyStore {
 public:
  explicit PolicyStore(ServerPolicy policy) : policy_(std::make_shared<const ServerPolicy>(std::move(policy))) {}

  std::shared_ptr<const ServerPolicy> get() const {
    const std::lock_guard lock(mutex_);
    return policy_;
  }
  void set(ServerPolicy policy) {
    auto next = std::make_shared<const ServerPolicy>(std::move(policy));
    const std::lock_guard lock(mutex_);
    policy_.swap(next);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const ServerPolicy> policy_;
};

enum class Access {
  refused,
  user,
  admin  // everything; whoever has any key, where no key is an admin's
};

// What the keys of a request allow (docs/http-api.md 3). Keys are compared in a time that does not depend on how much
// of them is right.
Access access_of(const Request& request, const ServerPolicy& policy);

// Whether only an admin may do that, where there are admin keys. `path`: without prefix.
bool needs_admin(std::string_view method, std::string_view path) noexcept;

}  // namespace bankml
