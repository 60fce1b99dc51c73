#pragma once
// The page at "/" and the files beside it (docs/http-api.md 6, docs/service.md).
#include <string_view>

#include "server/http.hpp"

namespace bankml {

// Whether the page lives at this path (without prefix). Such paths need no key.
bool is_page(std::string_view path) noexcept;

// What is at a path of the page: 304 if the request names the version that it would get.
Response page_response(std::string_view path, const Request& request);

}  // namespace bankml
