#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <system_error>

#include "bankml/base/error.hpp"
#include "bankml/engine/slot_file.hpp"
#include "base/file_descriptor.hpp"
#include "engine/checksum.hpp"
#include "engine/slot_file_format.hpp"

namespace bankml {
namespace {

using namespace slot_file;

[[noreturn]] void fail(const std::filesystem::path& path, const char* what, int error) {
  throw Error(ErrorKind::io, fmt::format("slot file {}: {}: {}", path.string(), what,
                                         std::error_code(error, std::generic_category()).message()));
}

// A file that exists only once it is complete.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path)
      : path_(path), temporary_((directory() / ".bankml-slot-XXXXXX").string()) {
    buffer_.reserve(kBufferBytes);
    fd_ = FileDescriptor(::mkostemp(temporary_.data(), O_CLOEXEC));  // last: what throws after it would leave the file
    if (!fd_) fail(path_, "can't be created", errno);
  }
  ~AtomicFile() {
    if (fd_) ::unlink(temporary_.c_str());
  }
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::span<const std::byte> bytes) {
    if (buffer_.size() + bytes.size() > kBufferBytes) flush();
    if (bytes.size() > kBufferBytes) return write_through(bytes);
    buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
  }

  // Syncs, and gives the file its name. Returns its size.
  std::uint64_t commit() {
    flush();
    if (::fsync(fd_.get()) != 0) fail(path_, "can't be written", errno);
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) fail(path_, "can't be given its name", errno);
    fd_ = FileDescriptor();
    const FileDescriptor folder(::open(directory().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    // Some file systems can't sync a folder; the file itself is safe.
    if (folder && ::fsync(folder.get()) != 0 && errno != EINVAL) fail(path_, "its folder can't be written", errno);
    return size_;
  }

 private:
  std::filesystem::path directory() const { return path_.has_parent_path() ? path_.parent_path() : "."; }

  void flush() {
    write_through(buffer_);
    buffer_.clear();
  }

  void write_through(std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      const ssize_t n = ::write(fd_.get(), bytes.data(), bytes.size());
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) fail(path_, "can't be written", errno);
      size_ += static_cast<std::uint64_t>(n);
      bytes = bytes.subspan(static_cast<std::size_t>(n));
    }
  }

  std::filesystem::path path_;
  std::string temporary_;
  FileDescriptor fd_;
  std::vector<std::byte> buffer_;
  std::uint64_t size_ = 0;
};

std::vector<std::uint32_t> head_words(std::span<const TokenId> tokens) {
  const auto n = static_cast<std::uint32_t>(tokens.size());
  std::vector<std::uint32_t> words = {kMagic, kVersion, kPayloadFixedWords + n, kPayloadMarker, kPayloadVersion, n};
  for (const TokenId token : tokens) words.push_back(static_cast<std::uint32_t>(token));
  words.push_back(0);  // media keys
  return words;
}

void add_row_sizes(std::vector<std::uint32_t>& words, std::span<const SlotFileFormat::LayerRows> layers) {
  for (const SlotFileFormat::LayerRows& layer : layers) {
    words.push_back(layer.k);
    words.push_back(layer.v);
  }
}

std::vector<std::byte> state_head(std::size_t cells, const SlotFileFormat& format,
                                  std::span<const std::int32_t> window_tokens) {
  std::vector<std::uint32_t> words = {kStateMagic,
                                      kStateVersion,
                                      static_cast<std::uint32_t>(cells),
                                      static_cast<std::uint32_t>(format.type_k),
                                      static_cast<std::uint32_t>(format.type_v),
                                      static_cast<std::uint32_t>(format.layers.size()),
                                      static_cast<std::uint32_t>(format.model.size())};
  words.resize(words.size() + padded(format.model.size()) / kWord);
  std::memcpy(words.data() + kStateWords, format.model.data(), format.model.size());
  add_row_sizes(words, format.layers);
  if (format.window > 0) {
    words.push_back(static_cast<std::uint32_t>(format.window_layers.size()));
    add_row_sizes(words, format.window_layers);
    words.push_back(static_cast<std::uint32_t>(window_tokens.size()));
    for (const std::int32_t token : window_tokens) words.push_back(static_cast<std::uint32_t>(token));
  }
  const auto bytes = std::as_bytes(std::span(words));
  return {bytes.begin(), bytes.end()};
}

std::size_t row_bytes_of(std::span<const SlotFileFormat::LayerRows> layers) noexcept {
  std::size_t bytes = 0;
  for (const SlotFileFormat::LayerRows& layer : layers) bytes += std::size_t{layer.k} + layer.v;
  return bytes;
}

}  // namespace

std::size_t SlotFileFormat::cell_bytes() const noexcept {
  return row_bytes_of(layers);
}
std::size_t SlotFileFormat::window_cell_bytes() const noexcept {
  return row_bytes_of(window_layers);
}

std::uint64_t write_slot_file(const std::filesystem::path& path, std::span<const TokenId> tokens,
                              const SlotFileFormat& format,
                              const std::function<void(std::size_t, std::span<std::byte>)>& fill_cell,
                              std::span<const std::int32_t> window_tokens) {
  AtomicFile file(path);
  file.write(std::as_bytes(std::span<const std::uint32_t>(head_words(tokens))));
  Checksum checksum;
  const auto write_state = [&](std::span<const std::byte> bytes) {
    checksum.add(bytes);
    file.write(bytes);
  };
  write_state(state_head(tokens.size(), format, window_tokens));
  std::vector<std::byte> cell(format.cell_bytes());
  for (std::size_t i = 0; i < tokens.size() + window_tokens.size(); ++i) {
    if (i == tokens.size()) cell.resize(format.window_cell_bytes());
    fill_cell(i, cell);
    write_state(cell);
  }
  const std::uint64_t value = checksum.value();
  file.write(std::as_bytes(std::span(&value, 1)));
  return file.commit();
}

}  // namespace bankml
