#include "server/page.hpp"

#include <algorithm>

#include "server/content_type.hpp"
#include "server/page_files.hpp"
#include "server/versions.hpp"

namespace bankml {
namespace {

constexpr std::string_view kIndex = "index.html";
constexpr std::string_view kFolder = "/page/";
// What pages of llama-server ask for to learn that there is another version.
constexpr PageFile kVersion = {"version.json", R"({"version":"1"})"};
constexpr std::string_view kVersionPath = "/_app/version.json";

// Nothing but the files beside the page: no other site, no code or style in the document, no frame around it.
constexpr const char* kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; manifest-src 'self'; "
    "worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

// The name of the file that lives at a path; "" if there is none.
std::string_view name_at(std::string_view path) noexcept {
  if (path == "/" || path == "/index.html") return kIndex;
  // Browsers look for these two at the root.
  if (path == "/sw.js" || path == "/manifest.webmanifest") return path.substr(1);
  return path.starts_with(kFolder) ? path.substr(kFolder.size()) : std::string_view();
}

const PageFile* find_file(std::string_view path) noexcept {
  if (path == kVersionPath) return &kVersion;
  const std::string_view name = name_at(path);
  const auto files = page_files();
  const auto file = std::ranges::find(files, name, &PageFile::name);
  return name.empty() || file == files.end() ? nullptr : &*file;
}

}  // namespace

bool is_page(std::string_view path) noexcept {
  return find_file(path) != nullptr;
}

Response page_response(std::string_view path, const Request& request) {
  const PageFile& file = *find_file(path);
  Response response{.status = 200,
                    .content_type = std::string(content_type_of(file.name)),
                    .body = std::string(file.text),
                    .headers = {{"Cache-Control", "no-cache"}, {"X-Content-Type-Options", "nosniff"}}};
  if (file.name == kIndex) {
    response.headers.emplace_back("Content-Security-Policy", kPolicy);
    response.headers.emplace_back("Referrer-Policy", "no-referrer");
    response.headers.emplace_back("Cross-Origin-Embedder-Policy", "require-corp");
    response.headers.emplace_back("Cross-Origin-Opener-Policy", "same-origin");
  }
  set_version(response, content_version(file.text), request);
  return response;
}

}  // namespace bankml
