#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "bankml/base/error.hpp"
#include "bankml/engine/slot_file.hpp"
#include "base/file_descriptor.hpp"
#include "engine/checksum.hpp"
#include "engine/slot_file_format.hpp"

namespace bankml {

using namespace slot_file;

struct SlotFile::Impl {
  std::string name;
  FileDescriptor fd;
  std::uint64_t size = 0;
  std::uint64_t rows_at = 0;  // offset of the first row
  std::size_t cell_bytes = 0, window_cell_bytes = 0;
  std::vector<TokenId> tokens;
  std::vector<std::int32_t> window_tokens;

  template <class... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::invalid_request,
                fmt::format("slot file {}: {}", name, fmt::format(format, std::forward<Args>(args)...)));
  }

  void open(const std::filesystem::path& path);
  void read(std::uint64_t offset, std::span<std::byte> out, ErrorKind kind) const;
  std::vector<std::uint32_t> words(std::uint64_t offset, std::uint64_t count) const;
  std::uint64_t read_head(std::size_t max_tokens, TokenId vocab);
  void read_tokens(std::span<const std::uint32_t> payload);
  void read_state_head(std::uint64_t offset, const SlotFileFormat& format);
  std::uint64_t read_row_sizes(std::uint64_t offset, std::span<const SlotFileFormat::LayerRows> layers) const;
  std::uint64_t read_window(std::uint64_t offset, const SlotFileFormat& format);
  void verify_checksum(std::uint64_t offset) const;
  void read_rows(std::uint64_t offset, std::size_t first, std::size_t count, std::size_t bytes,
                 const std::function<void(std::size_t, std::span<const std::byte>)>& take_cell) const;
};

void SlotFile::Impl::open(const std::filesystem::path& path) {
  name = path.filename().string();
  fd = FileDescriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));  // a pipe must not make us wait
  struct stat status {};
  if (!fd || ::fstat(fd.get(), &status) != 0) {
    refuse("can't be read: {}", std::error_code(errno, std::generic_category()).message());
  }
  if (!S_ISREG(status.st_mode)) refuse("expected a regular file");
  size = static_cast<std::uint64_t>(status.st_size);
}

void SlotFile::Impl::read(std::uint64_t offset, std::span<std::byte> out, ErrorKind kind) const {
  while (!out.empty()) {
    const ssize_t n = ::pread(fd.get(), out.data(), out.size(), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const std::string why =
          n < 0 ? std::error_code(errno, std::generic_category()).message() : "it has become shorter";
      throw Error(kind, fmt::format("slot file {}: can't be read: {}", name, why));
    }
    offset += static_cast<std::uint64_t>(n);
    out = out.subspan(static_cast<std::size_t>(n));
  }
}

std::vector<std::uint32_t> SlotFile::Impl::words(std::uint64_t offset, std::uint64_t count) const {
  if (offset > size || count > (size - offset) / kWord) {
    refuse("{}: expected {} words at byte {}, but it ends at byte {}", kNoSlotFile, count, offset, size);
  }
  std::vector<std::uint32_t> out(count);
  read(offset, std::as_writable_bytes(std::span(out)), ErrorKind::invalid_request);
  return out;
}

// Returns where the state begins.
std::uint64_t SlotFile::Impl::read_head(std::size_t max_tokens, TokenId vocab) {
  const std::vector<std::uint32_t> head = words(0, kHeadWords);
  if (head[0] != kMagic) refuse("{}: expected the magic number {:08x}, got {:08x}", kNoSlotFile, kMagic, head[0]);
  if (head[1] != kVersion) refuse("expected version {}, got {}", kVersion, head[1]);
  read_tokens(words(kHeadWords * kWord, head[2]));
  if (tokens.size() > max_tokens) {
    refuse("{}: the file holds {} tokens, but the slot has room for {}", kTooLongForSlot, tokens.size(), max_tokens);
  }
  for (const TokenId token : tokens) {
    if (token < 0 || token >= vocab) refuse("expected tokens from 0 to {}, got {}", vocab - 1, token);
  }
  return (kHeadWords + std::uint64_t{head[2]}) * kWord;
}

void SlotFile::Impl::read_tokens(std::span<const std::uint32_t> payload) {
  if (!payload.empty() && payload[0] == kPayloadMarker) {
    if (payload.size() < kPayloadFixedWords) {
      refuse("expected at least {} payload words, got {}", kPayloadFixedWords, payload.size());
    }
    if (payload[1] != kPayloadVersion) {
      refuse("{}: expected payload version {}, got {}", kUnknownPayload, kPayloadVersion, payload[1]);
    }
    if (payload[2] > payload.size() - kPayloadFixedWords) {
      refuse("expected at most {} tokens in {} payload words, got {}", payload.size() - kPayloadFixedWords,
             payload.size(), payload[2]);
    }
    const std::uint32_t media = payload[3 + payload[2]];
    if (media != 0) refuse("expected no media, got {} keys", media);
    if (payload[2] != payload.size() - kPayloadFixedWords) {
      refuse("expected {} payload words for {} tokens, got {}", kPayloadFixedWords + payload[2], payload[2],
             payload.size());
    }
    payload = payload.subspan(3, payload[2]);
  }
  for (const std::uint32_t word : payload) tokens.push_back(static_cast<TokenId>(word));
}

void SlotFile::Impl::read_state_head(std::uint64_t offset, const SlotFileFormat& format) {
  const std::vector<std::uint32_t> head = words(offset, kStateWords);
  const auto expect = [&](const char* what, std::uint64_t expected, std::uint64_t got) {
    if (expected != got) refuse("{}: expected {} {}, got {}", kNoSlotFile, what, expected, got);
  };
  if (head[0] != kStateMagic) {
    refuse("{}: expected the state's magic number {:08x}, got {:08x}", kNoSlotFile, kStateMagic, head[0]);
  }
  expect("state version", kStateVersion, head[1]);
  const auto expect_type = [&](const char* what, DType expected, std::uint32_t got) {
    if (static_cast<std::uint32_t>(expected) == got) return;
    const DTypeInfo* info = find_dtype(static_cast<std::int32_t>(got));
    refuse("expected {} cells of type {}, got {}", what, dtype_info(expected).name,
           info != nullptr ? std::string(info->name) : fmt::format("type {}", got));
  };
  expect_type("K", format.type_k, head[3]);
  expect_type("V", format.type_v, head[4]);
  expect("layers", format.layers.size(), head[5]);

  offset += kStateWords * kWord;
  const std::vector<std::uint32_t> name_words = words(offset, padded(head[6]) / kWord);
  const std::string_view model(reinterpret_cast<const char*>(name_words.data()), head[6]);
  if (model != format.model) refuse("expected the state of model \"{}\", got one of another model", format.model);

  offset = read_row_sizes(offset + padded(head[6]), format.layers);
  expect("cells for the tokens:", tokens.size(), head[2]);
  if (format.window > 0) offset = read_window(offset, format);
  rows_at = offset;
  cell_bytes = format.cell_bytes();
  window_cell_bytes = format.window_cell_bytes();
  expect("a file size of",
         rows_at + std::uint64_t{cell_bytes} * tokens.size() + std::uint64_t{window_cell_bytes} * window_tokens.size() +
             kChecksumBytes,
         size);
}

// Returns what follows.
std::uint64_t SlotFile::Impl::read_row_sizes(std::uint64_t offset,
                                             std::span<const SlotFileFormat::LayerRows> layers) const {
  const std::vector<std::uint32_t> rows = words(offset, 2 * layers.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].k == rows[2 * i] && layers[i].v == rows[2 * i + 1]) continue;
    refuse("expected rows of {} and {} bytes in layer {}, got {} and {}", layers[i].k, layers[i].v, i, rows[2 * i],
           rows[2 * i + 1]);
  }
  return offset + 2 * layers.size() * kWord;
}

// Returns what follows. The window layers must hold what the next token sees: the last tokens, in any order.
std::uint64_t SlotFile::Impl::read_window(std::uint64_t offset, const SlotFileFormat& format) {
  const std::uint32_t layers = words(offset, 1)[0];
  if (layers != format.window_layers.size()) {
    refuse("expected {} layers with a window, got {}", format.window_layers.size(), layers);
  }
  offset = read_row_sizes(offset + kWord, format.window_layers);
  const std::uint32_t count = words(offset, 1)[0];
  const std::size_t expected = std::min(tokens.size(), static_cast<std::size_t>(format.window));
  if (count != expected) refuse("expected {} tokens in layers with a window, got {}", expected, count);
  for (const std::uint32_t word : words(offset + kWord, count))
    window_tokens.push_back(static_cast<std::int32_t>(word));
  std::vector<std::int32_t> sorted = window_tokens;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < count; ++i) {
    const auto token = static_cast<std::int32_t>(tokens.size() - count + i);
    if (sorted[i] != token) refuse("expected token {} in layers with a window, got {}", token, sorted[i]);
  }
  return offset + (1 + std::uint64_t{count}) * kWord;
}

void SlotFile::Impl::verify_checksum(std::uint64_t offset) const {
  Checksum checksum;
  const std::uint64_t end = size - kChecksumBytes;
  std::vector<std::byte> buffer(std::min<std::uint64_t>(kBufferBytes, end - offset));
  while (offset < end) {
    const auto piece = std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), end - offset));
    read(offset, piece, ErrorKind::invalid_request);
    checksum.add(piece);
    offset += piece.size();
  }
  std::uint64_t stored = 0;
  read(end, std::as_writable_bytes(std::span(&stored, 1)), ErrorKind::invalid_request);
  if (stored != checksum.value()) {
    refuse("is damaged: expected the checksum {:016x}, got {:016x}", stored, checksum.value());
  }
}

SlotFile::SlotFile(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
SlotFile::~SlotFile() = default;
SlotFile::SlotFile(SlotFile&&) noexcept = default;
SlotFile& SlotFile::operator=(SlotFile&&) noexcept = default;

SlotFile SlotFile::open(const std::filesystem::path& path, const SlotFileFormat& format, std::size_t max_tokens,
                        TokenId vocab) {
  auto impl = std::make_unique<Impl>();
  impl->open(path);
  const std::uint64_t state = impl->read_head(max_tokens, vocab);
  impl->read_state_head(state, format);
  impl->verify_checksum(state);
  return SlotFile(std::move(impl));
}

const std::vector<TokenId>& SlotFile::tokens() const noexcept {
  return impl_->tokens;
}
const std::vector<std::int32_t>& SlotFile::window_tokens() const noexcept {
  return impl_->window_tokens;
}
std::uint64_t SlotFile::bytes() const noexcept {
  return impl_->size;
}

void SlotFile::Impl::read_rows(std::uint64_t offset, std::size_t first, std::size_t count, std::size_t bytes,
                               const std::function<void(std::size_t, std::span<const std::byte>)>& take_cell) const {
  if (bytes == 0) return;
  const std::size_t at_once = std::max<std::size_t>(1, kBufferBytes / bytes);
  std::vector<std::byte> buffer(std::min(at_once, count) * bytes);
  for (std::size_t done = 0; done < count; done += at_once) {
    const std::size_t n = std::min(at_once, count - done);
    const auto piece = std::span(buffer).first(n * bytes);
    read(offset + std::uint64_t{done} * bytes, piece, ErrorKind::io);
    for (std::size_t i = 0; i < n; ++i) take_cell(first + done + i, piece.subspan(i * bytes, bytes));
  }
}

void SlotFile::read_cells(const std::function<void(std::size_t, std::span<const std::byte>)>& take_cell) const {
  const std::size_t n = impl_->tokens.size();
  impl_->read_rows(impl_->rows_at, 0, n, impl_->cell_bytes, take_cell);
  impl_->read_rows(impl_->rows_at + std::uint64_t{n} * impl_->cell_bytes, n, impl_->window_tokens.size(),
                   impl_->window_cell_bytes, take_cell);
}

}  // namespace bankml
