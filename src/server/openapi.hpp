#pragma once
#include <string_view>

namespace bankml {

// docs/openapi.json, which the build puts into the program.
std::string_view openapi_document() noexcept;

}  // namespace bankml
