#pragma once
// Reads the fields of a GGUF file one after the other; nothing is read before it is known to be there.
#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "bankml/base/error.hpp"

namespace bankml {

// `what` names the field in the Error(invalid_request) that is thrown where the bytes end too early.
class GgufCursor {
 public:
  // `file` is the name used in messages and must outlive the cursor.
  GgufCursor(std::span<const std::byte> bytes, const std::string& file) noexcept : bytes_(bytes), file_(file) {}

  std::size_t position() const noexcept { return position_; }
  std::size_t remaining() const noexcept { return bytes_.size() - position_; }

  std::span<const std::byte> take(std::uint64_t n, std::string_view what) {
    if (n > remaining()) {
      throw Error(ErrorKind::invalid_request,
                  fmt::format("{}: {} at byte {}: expected {} bytes, found {} before the end", file_, what, position_,
                              n, remaining()));
    }
    const auto part = bytes_.subspan(position_, n);
    position_ += n;
    return part;
  }

  template <class T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  // A length word and that many bytes.
  std::string_view string(std::string_view what) {
    constexpr std::uint64_t kMaxLength = std::uint64_t{1} << 30;
    const auto length = read<std::uint64_t>(what);
    if (length > kMaxLength) {
      throw Error(ErrorKind::invalid_request, fmt::format("{}: {} at byte {}: expected at most {} bytes, found {}",
                                                          file_, what, position_, kMaxLength, length));
    }
    const auto part = take(length, what);
    return {reinterpret_cast<const char*>(part.data()), part.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  std::size_t position_ = 0;
  const std::string& file_;
};

}  // namespace bankml
