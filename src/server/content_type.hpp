#pragma once
// The Content-Type of a file, by the ending of its name.
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

namespace bankml {

inline std::string_view content_type_of(std::string_view name) noexcept {
  using Type = std::pair<std::string_view, std::string_view>;
  static constexpr std::array kTypes = std::to_array<Type>({{"html", "text/html; charset=utf-8"},
                                                            {"htm", "text/html; charset=utf-8"},
                                                            {"css", "text/css; charset=utf-8"},
                                                            {"js", "text/javascript; charset=utf-8"},
                                                            {"mjs", "text/javascript; charset=utf-8"},
                                                            {"json", "application/json; charset=utf-8"},
                                                            {"webmanifest", "application/manifest+json"},
                                                            {"txt", "text/plain; charset=utf-8"},
                                                            {"md", "text/markdown; charset=utf-8"},
                                                            {"xml", "application/xml"},
                                                            {"svg", "image/svg+xml"},
                                                            {"png", "image/png"},
                                                            {"jpg", "image/jpeg"},
                                                            {"jpeg", "image/jpeg"},
                                                            {"gif", "image/gif"},
                                                            {"webp", "image/webp"},
                                                            {"ico", "image/x-icon"},
                                                            {"pdf", "application/pdf"},
                                                            {"wasm", "application/wasm"},
                                                            {"woff", "font/woff"},
                                                            {"woff2", "font/woff2"}});
  const std::size_t dot = name.rfind('.');
  const std::string_view ending = dot == std::string_view::npos ? std::string_view() : name.substr(dot + 1);
  const auto* const type = std::ranges::find(kTypes, ending, &Type::first);
  return type == kTypes.end() ? "application/octet-stream" : type->second;
}

}  // namespace bankml
