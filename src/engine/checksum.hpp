#pragma once
// A 64-bit checksum of a stream of bytes against damage by accident, at memory speed: each 8 bytes are mixed by a
// multiplication and a rotation, in the manner of FNV-1a (Fowler, Noll, Vo). Not against forgery.
#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace bankml {

class Checksum {
 public:
  // The result doesn't depend on how the bytes are divided into calls.
  void add(std::span<const std::byte> bytes) noexcept {
    if (bytes.empty()) return;
    length_ += bytes.size();
    if (held_ > 0) {
      const std::size_t n = std::min(bytes.size(), sizeof word_ - held_);
      std::memcpy(reinterpret_cast<std::byte*>(&word_) + held_, bytes.data(), n);
      bytes = bytes.subspan(n);
      held_ += n;
      if (held_ < sizeof word_) return;
      mix(word_);
      held_ = 0;
      word_ = 0;
    }
    for (; bytes.size() >= sizeof word_; bytes = bytes.subspan(sizeof word_)) {
      std::uint64_t word;
      std::memcpy(&word, bytes.data(), sizeof word);
      mix(word);
    }
    if (!bytes.empty()) std::memcpy(&word_, bytes.data(), bytes.size());
    held_ = bytes.size();
  }

  std::uint64_t value() const noexcept {
    Checksum last = *this;
    last.mix(word_);  // the rest, filled up with zeros
    last.mix(length_);
    return last.state_ ^ (last.state_ >> 32);
  }

 private:
  void mix(std::uint64_t word) noexcept {
    constexpr std::uint64_t kPrime = 0x9E3779B97F4A7C15u;  // 2^64 divided by the golden ratio, odd
    constexpr int kRotation = 29;
    state_ = std::rotl((state_ ^ word) * kPrime, kRotation);
  }

  std::uint64_t state_ = 0xCBF29CE484222325u;
  std::uint64_t word_ = 0;  // the first held_ bytes of the next word
  std::uint64_t length_ = 0;
  std::size_t held_ = 0;
};

}  // namespace bankml
