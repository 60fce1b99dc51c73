#include "server/policy.hpp"

#include <algorithm>
#include <string_view>

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

bool contains(const std::vector<std::string>& keys, std::string_view given) noexcept {
  bool found = false;
  for (const std::string& key : keys) found |= equal_in_constant_time(given, key);
  return found;
}

}  // namespace

Access access_of(const Request& request, const ServerPolicy& policy) {
  constexpr std::string_view kBearer = "Bearer ";
  std::string_view given = request.header("Authorization");
  if (given.empty()) given = request.header("X-Api-Key");
  if (given.starts_with(kBearer)) given.remove_prefix(kBearer.size());
  const bool is_admin = contains(policy.admin_keys, given);
  const bool is_user = policy.api_keys.empty() || contains(policy.api_keys, given);
  if (is_admin || (is_user && policy.admin_keys.empty())) return Access::admin;
  return is_user ? Access::user : Access::refused;
}

bool needs_admin(std::string_view method, std::string_view path) noexcept {
  return (method == "POST" && (path == "/props" || path.starts_with("/slots/"))) ||
         (method == "GET" && path == "/cache");
}

}  // namespace bankml
