// Opening a slot file with any content: it is refused with Error(invalid_request), or read whole.
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "bankml/base/error.hpp"
#include "bankml/engine/slot_file.hpp"

namespace {

bankml::SlotFileFormat format() {
  bankml::SlotFileFormat format;
  format.model = "tiny";
  format.layers = {{8, 8}, {4, 16}};
  return format;
}

void read_file(int fd) {
  constexpr std::size_t kMaxTokens = 64;
  constexpr bankml::TokenId kVocab = 1000;
  try {
    const auto file = bankml::SlotFile::open(fmt::format("/proc/self/fd/{}", fd), format(), kMaxTokens, kVocab);
    if (file.tokens().size() > kMaxTokens) std::abort();
    std::size_t cells = 0;
    file.read_cells([&](std::size_t, std::span<const std::byte>) { ++cells; });
    if (cells != file.tokens().size()) std::abort();
  } catch (const bankml::Error& error) {
    if (error.kind() != bankml::ErrorKind::invalid_request) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    bankml::check_slot_file_name(std::string_view(reinterpret_cast<const char*>(data), size));
  } catch (const bankml::Error& error) {
    if (error.kind() != bankml::ErrorKind::invalid_request) std::abort();
  }
  const int fd = memfd_create("slot", MFD_CLOEXEC);
  if (fd < 0) return 0;
  if (write(fd, data, size) == static_cast<ssize_t>(size)) read_file(fd);
  close(fd);
  return 0;
}
