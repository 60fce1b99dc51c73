#pragma once
#include <span>
#include <string_view>

namespace bankml {

struct PageFile {
  std::string_view name, text;
};

// The files of src/server/page, which the build puts into the program.
std::span<const PageFile> page_files() noexcept;

}  // namespace bankml
