#include "server/versions.hpp"

#include <fmt/core.h>

#include <cstdint>

namespace bankml {

// Fowler-Noll-Vo, 64 bits.
std::string content_version(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return fmt::format("\"{:016x}\"", hash);
}

void set_version(Response& response, const std::string& tag, const Request& request) {
  response.headers.emplace_back("ETag", tag);
  const std::string_view held = request.header("If-None-Match");
  // A tag has quotes around it, so that it is no part of another one; weak ones ("W/" in front) compare equal here.
  if (held != "*" && held.find(tag) == std::string_view::npos) return;
  response.status = 304;
  response.body.clear();
}

}  // namespace bankml
