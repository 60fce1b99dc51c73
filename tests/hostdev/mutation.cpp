#include "mutation.hpp"

#include <backtrace.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace bankml::host {
namespace {

constexpr std::size_t kMaxSites = 1024;

std::string_view base_name(std::string_view path) {
  path.remove_prefix(path.rfind('/') + 1);
  return path;
}

// A line that a test met. File names live as long as the program.
struct Line {
  const char* file = nullptr;
  unsigned number = 0;
};

// Where a call stands, by the address that it returns to; no file where the program tells no lines.
Line line_of_call(const void* return_address) {
  static backtrace_state* const state = backtrace_create_state(
      nullptr, 1, [](void*, const char*, int) {}, nullptr);
  Line line;
  backtrace_pcinfo(
      state, reinterpret_cast<std::uintptr_t>(return_address) - 1,
      [](void* out, std::uintptr_t, const char* file, int number, const char*) {
        if (file) *static_cast<Line*>(out) = {file, static_cast<unsigned>(number)};
        return 1;  // the innermost of inlined functions comes first
      },
      [](void*, const char*, int) {}, &line);
  return line;
}

// Read before main(); what is found on the way is kept without allocation, since CUDA threads come here.
class Mutation {
 public:
  Mutation() : list_(std::getenv("HOSTDEV_LIST")) {
    const char* const omit = std::getenv("HOSTDEV_OMIT");
    if (!omit) return;
    const std::string_view text = omit;
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos) return;
    file_ = text.substr(0, colon);
    line_ = static_cast<unsigned>(std::strtoul(omit + colon + 1, nullptr, 10));
  }
  bool idle() const noexcept { return !list_ && line_ == 0; }
  void list(const char* test, long long milliseconds) {
    std::FILE* const out = list_ ? std::fopen(list_, "a") : nullptr;
    if (!out) return;
    for (std::size_t i = 0; i < count_; ++i) {
      const std::string_view file = base_name(lines_[i].file);
      std::fprintf(out, "%.*s:%u\t%s\t%lld\n", static_cast<int>(file.size()), file.data(), lines_[i].number, test,
                   milliseconds);
    }
    std::fclose(out);
    count_ = 0;
  }
  bool omits(const Line& at) noexcept {
    if (list_) remember(at);
    return line_ == at.number && line_ != 0 && base_name(at.file) == file_;
  }

 private:
  void remember(const Line& at) noexcept {
    while (lock_.test_and_set(std::memory_order_acquire)) {
    }
    std::size_t i = 0;
    while (i < count_ && !(lines_[i].number == at.number && lines_[i].file == at.file)) ++i;
    if (i == count_ && count_ < kMaxSites) lines_[count_++] = at;
    lock_.clear(std::memory_order_release);
  }

  const char* list_;
  std::string_view file_;
  unsigned line_ = 0;
  std::atomic_flag lock_;
  std::size_t count_ = 0;
  Line lines_[kMaxSites];
};

Mutation& mutation() {
  static Mutation instance;
  return instance;
}
// At the start of the program, and not on a fiber.
[[maybe_unused]] const Mutation& created = mutation();

}  // namespace

bool omitted(const Site& at) noexcept {
  return mutation().omits({at.file_name(), static_cast<unsigned>(at.line())});
}
bool omitted_call(const void* return_address) {
  if (mutation().idle()) return false;
  const Line line = line_of_call(return_address);
  return line.file && mutation().omits(line);
}
void list_sites(const char* test, long long milliseconds) {
  mutation().list(test, milliseconds);
}

}  // namespace bankml::host
