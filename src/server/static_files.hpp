#pragma once
// The files of a directory, served in place of the page (--path).
#include <filesystem>
#include <optional>
#include <string_view>

#include "server/http.hpp"

namespace bankml {

// The file at `path` below `root`, as it is now; of a directory its index.html, after a redirection to the path with a
// slash at its end, from which relative links are right. nullopt if there is none that may be read, and for paths that
// lead out of `root`, by ".." or by a symbolic link. 304 if the request names the version that it would get. Throws
// Error(io) for a file that can't be read to its end. Any thread.
std::optional<Response> static_file(const std::filesystem::path& root, std::string_view path, const Request& request);

}  // namespace bankml
