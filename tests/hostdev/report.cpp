// The texts of failed launches, and the checks that precede one.
#include <backtrace.h>
#include <cxxabi.h>
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "bankml/base/error.hpp"
#include "block.hpp"

namespace bankml::host {
namespace {

std::string demangled(const char* symbol) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> name(abi::__cxa_demangle(symbol, nullptr, nullptr, &status),
                                                         &std::free);
  return status == 0 && name ? name.get() : symbol;
}

void erase_all(std::string& text, std::string_view part) {
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part)) text.erase(at, part.size());
}

// "void bankml::host::(anonymous namespace)::rms_norm<256>(float*, int)" to "rms_norm<256>".
std::string short_name(std::string name) {
  for (const std::string_view part : {"(anonymous namespace)::", "bankml::", "host::"}) erase_all(name, part);
  if (name.starts_with("void ")) name.erase(0, 5);
  int depth = 0;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] == '<') ++depth;
    if (name[i] == '>') --depth;
    if (name[i] == '(' && depth == 0) return name.substr(0, i);
  }
  return name;
}

std::string triple(uint3 i) {
  return fmt::format("({},{},{})", i.x, i.y, i.z);
}

std::string prefix(const Grid& grid, uint3 block) {
  return fmt::format("{} block {}: ", kernel_name(grid.kernel), triple(block));
}

std::string launched_at(const Grid& grid) {
  return fmt::format(", launched at {}", place_of(grid.shape.at));
}

struct Grants {
  std::mutex mutex;
  std::map<const void*, std::size_t> bytes;
};
Grants& grants() {
  static Grants instance;
  return instance;
}

[[noreturn]] void refuse(const void* kernel, const LaunchShape& shape, const std::string& what) {
  throw Error(ErrorKind::device, fmt::format("{}: {}, launched at {}", kernel_name(kernel), what, place_of(shape.at)));
}

}  // namespace

std::string kernel_name(const void* kernel) {
  static backtrace_state* const state = backtrace_create_state(
      nullptr, 1, [](void*, const char*, int) {}, nullptr);
  std::string name = fmt::format("kernel {}", kernel);
  backtrace_syminfo(
      state, reinterpret_cast<std::uintptr_t>(kernel),
      [](void* out, std::uintptr_t, const char* symbol, std::uintptr_t, std::uintptr_t) {
        if (symbol) *static_cast<std::string*>(out) = short_name(demangled(symbol));
      },
      [](void*, const char*, int) {}, &name);
  return name;
}

std::string place_of(const Site& at) {
  std::string_view file = at.file_name();
  file.remove_prefix(std::min(file.size(), file.rfind('/') + 1));
  return fmt::format("{}:{}", file, at.line());
}

std::string describe_mistake(const Grid& grid, uint3 block, const Mistake& mistake) {
  std::string text = prefix(grid, block) + "thread " + triple(mistake.thread);
  if (mistake.other_operation) {
    const bool same = std::string_view(mistake.operation) == mistake.other_operation;
    text += fmt::format(" waits in {} at {} while others wait {}at line {}", mistake.operation, place_of(mistake.at),
                        same ? std::string() : fmt::format("in {} ", mistake.other_operation), mistake.other_at.line());
  } else {
    text += fmt::format(": {}", mistake.what);
    if (mistake.at.line() != 0) text += " at " + place_of(mistake.at);
  }
  return text + launched_at(grid);
}

std::string describe_deadlock(const Grid& grid, uint3 block, const std::vector<CudaThread>& threads,
                              std::size_t count) {
  struct Group {
    std::size_t threads = 0;
    uint3 first;
  };
  std::map<std::string, Group> groups;  // "has returned" sorts before "waits in"
  for (std::size_t i = 0; i < count; ++i) {
    const CudaThread& thread = threads[i];
    const std::string what = thread.state == ThreadState::returned
                                 ? "has returned"
                                 : fmt::format("waits in {} at {}", thread.waits_in, place_of(thread.waits_at));
    Group& group = groups[what];
    if (group.threads++ == 0) group.first = thread.index;
  }
  std::string text = prefix(grid, block) + "deadlock";
  for (const auto& [what, group] : groups) {
    text += fmt::format("\n  {} x {}, first thread {}", group.threads, what, triple(group.first));
  }
  return text + launched_at(grid);
}

void allow_shared_bytes(const void* kernel, std::size_t bytes, Site at) {
  if (bytes > kMaxSharedBytes) {
    refuse(kernel, {.at = at},
           fmt::format("{} bytes of dynamic shared memory wanted, a device has up to {}", bytes, kMaxSharedBytes));
  }
  const std::lock_guard lock(grants().mutex);
  grants().bytes[kernel] = bytes;
}

void check_launch(const void* kernel, const LaunchShape& shape) {
  const auto& [grid, block, shared, at] = shape;
  const auto inside = [](std::int64_t n, std::int64_t limit) { return n >= 1 && n <= limit; };
  if (!inside(block.x, kMaxBlockThreads) || !inside(block.y, kMaxBlockThreads) || !inside(block.z, kMaxBlockZ) ||
      block.count() > kMaxBlockThreads) {
    refuse(kernel, shape,
           fmt::format("block of ({},{},{}) threads: 1 to {} fit, z up to {}", block.x, block.y, block.z,
                       kMaxBlockThreads, kMaxBlockZ));
  }
  if (!inside(grid.x, kMaxGridX) || !inside(grid.y, kMaxGridYZ) || !inside(grid.z, kMaxGridYZ)) {
    refuse(kernel, shape,
           fmt::format("grid of ({},{},{}) blocks: 1 to {} fit, y and z up to {}", grid.x, grid.y, grid.z, kMaxGridX,
                       kMaxGridYZ));
  }
  if (shared <= kDefaultSharedBytes) return;
  const std::lock_guard lock(grants().mutex);
  const auto granted = grants().bytes.find(kernel);
  const std::size_t limit = granted == grants().bytes.end() ? kDefaultSharedBytes : granted->second;
  if (shared > limit) {
    refuse(kernel, shape, fmt::format("{} bytes of dynamic shared memory, {} allowed", shared, limit));
  }
}

}  // namespace bankml::host
