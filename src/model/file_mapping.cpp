#include "model/file_mapping.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

#include "bankml/base/error.hpp"
#include "base/file_descriptor.hpp"

namespace bankml {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, const char* operation) {
  const std::error_code code(errno, std::generic_category());
  throw Error(code == std::errc::no_such_file_or_directory ? ErrorKind::not_found : ErrorKind::io,
              fmt::format("{}: {}: {}", path.string(), operation, code.message()));
}

}  // namespace

FileMapping::FileMapping(const std::filesystem::path& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) fail(path, "can't open");
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) fail(path, "can't read its size");
  if (!S_ISREG(status.st_mode)) throw Error(ErrorKind::io, fmt::format("{}: expected a regular file", path.string()));
  if (status.st_size == 0) return;  // an empty range can't be mapped
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) fail(path, "can't map into memory");
  data_ = data;
  bytes_ = size;
}

FileMapping::~FileMapping() {
  if (data_ != nullptr) ::munmap(data_, bytes_);
}

void FileMapping::discard(std::span<const std::byte> part) const noexcept {
  if (data_ == nullptr || part.empty()) return;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto* const base = static_cast<const std::byte*>(data_);
  const auto begin = static_cast<std::size_t>(part.data() - base);
  const std::size_t first = (begin + page - 1) / page * page;
  const std::size_t last = (begin + part.size()) / page * page;
  // Only advice: where the kernel doesn't take it the pages stay, which does no harm.
  if (first < last) ::madvise(static_cast<std::byte*>(data_) + first, last - first, MADV_DONTNEED);
}

}  // namespace bankml
