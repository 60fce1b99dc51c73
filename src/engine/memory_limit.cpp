#include "engine/memory_limit.hpp"

#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>

namespace bankml {
namespace {

namespace fs = std::filesystem;

// The first number of a file; none for one that is missing or says "max".
std::optional<std::uint64_t> read_number(const fs::path& path) {
  std::ifstream in(path);
  std::uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

// The number behind a key at the start of a line: "MemAvailable:  123 kB", "inactive_file 123".
std::optional<std::uint64_t> read_keyed(const fs::path& path, std::string_view wanted) {
  std::ifstream in(path);
  std::string key, rest;
  std::uint64_t value = 0;
  while (in >> key >> value) {
    if (key == wanted) return value;
    std::getline(in, rest);
  }
  return std::nullopt;
}

// Names of one version's files.
struct ControlFiles {
  const char *limit, *usage, *reclaimable;
};
constexpr ControlFiles kVersion1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
constexpr ControlFiles kVersion2 = {"memory.max", "memory.current", "inactive_file"};

std::optional<std::uint64_t> left_in_group(const fs::path& group, const ControlFiles& files) {
  const auto limit = read_number(group / files.limit);
  if (!limit) return std::nullopt;
  const std::uint64_t usage = read_number(group / files.usage).value_or(0);
  const std::uint64_t reclaimable = std::min(usage, read_keyed(group / "memory.stat", files.reclaimable).value_or(0));
  const std::uint64_t used = usage - reclaimable;
  return *limit > used ? *limit - used : 0;
}

// Where the group lies below the mount, and the path it has there: "0::/a/b", "4:memory:/a/b".
struct Membership {
  const ControlFiles* files;
  fs::path mount, group;
};

std::optional<Membership> parse_membership(std::string_view line, const fs::path& root) {
  const std::size_t first = line.find(':');
  if (first == std::string_view::npos) return std::nullopt;
  const std::size_t second = line.find(':', first + 1);
  if (second == std::string_view::npos) return std::nullopt;
  const std::string controllers = "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
  const fs::path group = fs::path(line.substr(second + 1)).relative_path();
  const fs::path mount = root / "sys/fs/cgroup";
  if (controllers == ",,") return Membership{&kVersion2, mount, group};
  if (controllers.find(",memory,") != std::string::npos) return Membership{&kVersion1, mount / "memory", group};
  return std::nullopt;
}

}  // namespace

std::optional<std::uint64_t> available_memory(const fs::path& root) {
  constexpr std::uint64_t kKiB = 1024;
  std::optional<std::uint64_t> least;
  const auto take = [&](std::optional<std::uint64_t> bytes) {
    if (bytes) least = std::min(*bytes, least.value_or(*bytes));
  };
  if (const auto kib = read_keyed(root / "proc/meminfo", "MemAvailable:")) take(*kib * kKiB);
  std::ifstream in(root / "proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    auto member = parse_membership(line, root);
    if (!member) continue;
    // A limit of any group above holds too. Inside a container the path may name groups that aren't visible.
    for (;; member->group = member->group.parent_path()) {
      take(left_in_group(member->mount / member->group, *member->files));
      if (member->group.empty()) break;
    }
  }
  return least;
}

std::int64_t default_cache_limit_mib(std::optional<std::uint64_t> available) noexcept {
  constexpr std::uint64_t kDefaultMib = 8192, kMib = 1024 * 1024, kShare = 4;
  if (!available) return kDefaultMib;
  return static_cast<std::int64_t>(std::min(kDefaultMib, *available / kShare / kMib));
}

}  // namespace bankml
