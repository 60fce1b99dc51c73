#pragma once
// A whole file mapped read-only.
#include <cstddef>
#include <filesystem>
#include <span>
#include <utility>

namespace bankml {

class FileMapping {
 public:
  FileMapping() = default;
  // Throws Error(not_found) or Error(io), naming the path.
  explicit FileMapping(const std::filesystem::path& path);
  FileMapping(FileMapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  FileMapping& operator=(FileMapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~FileMapping();

  std::span<const std::byte> bytes() const noexcept { return {static_cast<const std::byte*>(data_), bytes_}; }
  // Drops the pages that lie wholly within `part` from this process; reading them again fetches them from the file.
  void discard(std::span<const std::byte> part) const noexcept;

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace bankml
