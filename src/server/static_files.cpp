#include "server/static_files.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <boost/url/encode.hpp>
#include <boost/url/rfc/pchars.hpp>
#include <fstream>
#include <system_error>

#include "bankml/base/error.hpp"
#include "server/content_type.hpp"
#include "server/versions.hpp"

namespace bankml {
namespace {

namespace fs = std::filesystem;

bool is_below(const fs::path& root, const fs::path& file) {
  return std::mismatch(root.begin(), root.end(), file.begin(), file.end()).first == root.end();
}

struct Found {
  fs::path file;  // a regular one, with all links followed; empty: there is none below the root
  bool is_index = false;
};

Found find_file(const fs::path& root, std::string_view path) {
  std::error_code error;
  const fs::path real_root = fs::canonical(root, error);
  if (error) return {};
  fs::path file = fs::canonical(real_root / path, error);
  if (error) return {};
  const bool is_directory = fs::is_directory(file, error);
  if (is_directory) file = fs::canonical(file / "index.html", error);
  if (error || !is_below(real_root, file) || !fs::is_regular_file(file, error)) return {};
  if (!is_directory && path.ends_with('/')) return {};  // canonical() would take it for the file
  return {file, is_directory};
}

// Changes with the contents of a file.
std::string file_version(const fs::path& file, std::size_t size) {
  std::error_code error;
  const auto written = fs::last_write_time(file, error).time_since_epoch();
  return fmt::format("\"{:x}-{:x}\"", written.count(), size);
}

}  // namespace

std::optional<Response> static_file(const fs::path& root, std::string_view path, const Request& request) {
  if (!path.starts_with('/') || path.find('\0') != std::string_view::npos) return std::nullopt;
  path.remove_prefix(1);
  if (path.starts_with('/')) return std::nullopt;  // it would be a path from the root of the system
  const auto [file, is_index] = find_file(root, path);
  if (file.empty()) return std::nullopt;
  if (is_index && !path.empty() && !path.ends_with('/')) {
    // Relative, so that it is right behind a proxy and under a prefix.
    const std::string name = boost::urls::encode(path.substr(path.rfind('/') + 1), boost::urls::pchars);
    return Response{
        .status = 301, .content_type = "text/html", .body = {}, .headers = {{"Location", fmt::format("./{}/", name)}}};
  }
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  if (!in) return std::nullopt;
  std::string body(static_cast<std::size_t>(in.tellg()), '\0');
  in.seekg(0);
  if (!in.read(body.data(), static_cast<std::streamsize>(body.size()))) {
    throw Error(ErrorKind::io, fmt::format("can't read {}", file.string()));
  }
  const std::string version = file_version(file, body.size());
  Response response{.status = 200,
                    .content_type = std::string(content_type_of(file.filename().native())),
                    .body = std::move(body),
                    .headers = {{"Cache-Control", "no-cache"}}};
  set_version(response, version, request);
  return response;
}

}  // namespace bankml
