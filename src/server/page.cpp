#include "server/page.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>

namespace bankml {
namespace {

struct PageFile {
  std::string_view path, content_type, text;
};

constexpr std::string_view kHtml = R"(<!doctype html>
<html lang="en"><meta charset="utf-8"><title>bankmld</title>
<p>bankmld is running. Its API is llama-server's: try <code>POST /v1/chat/completions</code>.
<code>GET /openapi.json</code> describes it.</p></html>
)";

// Takes over from the service worker of another server that may have been at this address, and does nothing.
constexpr std::string_view kServiceWorker = R"(self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.registration.unregister()));
)";

constexpr std::string_view kManifest =
    R"({"name":"bankmld","short_name":"bankmld","start_url":"./","display":"standalone"})";

constexpr std::array kFiles = std::to_array<PageFile>({
    {"/", "text/html; charset=utf-8", kHtml},
    {"/index.html", "text/html; charset=utf-8", kHtml},
    {"/sw.js", "text/javascript; charset=utf-8", kServiceWorker},
    {"/manifest.webmanifest", "application/manifest+json", kManifest},
    {"/_app/version.json", "application/json; charset=utf-8", R"({"version":"1"})"},
});

const PageFile* find_file(std::string_view path) noexcept {
  const auto* const file = std::ranges::find_if(kFiles, [path](const PageFile& f) { return f.path == path; });
  return file == kFiles.end() ? nullptr : file;
}

// Fowler-Noll-Vo, 64 bits: tells versions of these files apart.
std::string version_tag(std::string_view text) {
  std::uint64_t hash = 14695981039346656037u;
  for (const char byte : text) hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211u;
  return fmt::format("\"{:016x}\"", hash);
}

}  // namespace

bool is_page(std::string_view path) noexcept {
  return find_file(path) != nullptr;
}

Response page_response(std::string_view path, const Request& request) {
  const PageFile& file = *find_file(path);
  const std::string tag = version_tag(file.text);
  Response response{.status = 200,
                    .content_type = std::string(file.content_type),
                    .body = std::string(file.text),
                    .headers = {{"Cache-Control", "no-cache"}, {"ETag", tag}}};
  if (file.text == kHtml) {
    response.headers.emplace_back("Cross-Origin-Embedder-Policy", "require-corp");
    response.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  }
  if (request.header("If-None-Match") == tag) {
    response.status = 304;
    response.body.clear();
  }
  return response;
}

}  // namespace bankml
