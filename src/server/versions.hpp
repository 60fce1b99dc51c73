#pragma once
// Entity tags: clients that have a file need not get it again.
#include <string>
#include <string_view>

#include "server/http.hpp"

namespace bankml {

// A tag of that text.
std::string content_version(std::string_view text);

// Gives the answer this tag; it becomes an empty 304 if that is what the request has (or one of those, or "*").
void set_version(Response& response, const std::string& tag, const Request& request);

}  // namespace bankml
