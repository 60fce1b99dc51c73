#pragma once
// How much host memory the prompt cache may take when nobody says.
#include <cstdint>
#include <filesystem>
#include <optional>

namespace bankml {

// Bytes that this process can still take without others being pushed out: what the kernel calls available, or what is
// left of the limits of its control groups (versions 1 and 2, up to the root of what is mounted), whichever is least.
// Page cache that can be dropped counts as free. Unset where the kernel doesn't tell. `root` is the file system that
// proc and sys lie in.
std::optional<std::uint64_t> available_memory(const std::filesystem::path& root = "/");

// In MiB, as --cache-ram takes it: 8192, but at most a quarter of the available memory; 0 if that is less than 1 MiB.
std::int64_t default_cache_limit_mib(std::optional<std::uint64_t> available) noexcept;

}  // namespace bankml
