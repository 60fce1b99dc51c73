#include "mutation.hpp"

#include <atomic>
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
  void list(const char* test, long long milliseconds) {
    std::FILE* const out = list_ ? std::fopen(list_, "a") : nullptr;
    if (!out) return;
    for (std::size_t i = 0; i < count_; ++i) {
      const std::string_view file = base_name(sites_[i].file_name());
      std::fprintf(out, "%.*s:%u\t%s\t%lld\n", static_cast<int>(file.size()), file.data(),
                   static_cast<unsigned>(sites_[i].line()), test, milliseconds);
    }
    for (; listed_waits_ < waits_; ++listed_waits_) std::fprintf(out, "wait\t%s\t%lld\n", test, milliseconds);
    std::fclose(out);
    count_ = 0;
  }
  bool omits(const Site& at) noexcept {
    if (list_) remember(at);
    return line_ == at.line() && line_ != 0 && base_name(at.file_name()) == file_;
  }
  bool omits_wait() noexcept {
    const unsigned index = waits_.fetch_add(1, std::memory_order_relaxed);
    return file_ == "wait" && line_ == index;
  }

 private:
  void remember(const Site& at) noexcept {
    while (lock_.test_and_set(std::memory_order_acquire)) {
    }
    std::size_t i = 0;
    while (i < count_ && !(sites_[i].line() == at.line() && sites_[i].file_name() == at.file_name())) ++i;
    if (i == count_ && count_ < kMaxSites) sites_[count_++] = at;
    lock_.clear(std::memory_order_release);
  }

  const char* list_;
  std::string_view file_;
  unsigned line_ = 0;
  std::atomic_flag lock_;
  std::size_t count_ = 0;
  Site sites_[kMaxSites];
  std::atomic<unsigned> waits_{0};
  unsigned listed_waits_ = 0;
};

Mutation& mutation() {
  static Mutation instance;
  return instance;
}
// At the start of the program, and not on a fiber.
[[maybe_unused]] const Mutation& created = mutation();

}  // namespace

bool omitted(const Site& at) noexcept {
  return mutation().omits(at);
}
bool omitted_wait() noexcept {
  return mutation().omits_wait();
}
void list_sites(const char* test, long long milliseconds) {
  mutation().list(test, milliseconds);
}

}  // namespace bankml::host
