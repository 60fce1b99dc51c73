#pragma once
// Numbers of the slot file's layout (bankml/engine/slot_file.hpp).
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bankml::slot_file {

static_assert(std::endian::native == std::endian::little, "slot files are written in the byte order of the machine");

inline constexpr std::uint32_t kMagic = 0x66736B62;  // "bksf"
inline constexpr std::uint32_t kVersion = 1;
inline constexpr std::uint32_t kPayloadMarker = 0xFFFFFFFF;  // -1: not a plain list of tokens
inline constexpr std::uint32_t kPayloadVersion = 1;
inline constexpr std::uint32_t kPayloadFixedWords = 4;    // marker, version, token count, media key count
inline constexpr std::uint32_t kStateMagic = 0x766B6B62;  // "bkkv"
inline constexpr std::uint32_t kStateVersion = 1;
inline constexpr std::uint32_t kHeadWords = 3, kStateWords = 7;

inline constexpr std::size_t kWord = sizeof(std::uint32_t);
inline constexpr std::size_t kChecksumBytes = sizeof(std::uint64_t);
inline constexpr std::size_t kBufferBytes = 1 << 20;  // read or written at once

// What clients of llama-server look for in the error of a restore that can't be (docs/http-api.md 6).
inline constexpr std::string_view kUnknownPayload = "Unsupported server tokens state version";
inline constexpr std::string_view kNoSlotFile = "No available space in KV cache or invalid slot save file",
                                  kTooLongForSlot = "Restored prompt does not fit in the slot context";

constexpr std::size_t padded(std::size_t bytes) noexcept {
  return (bytes + kWord - 1) / kWord * kWord;
}

}  // namespace bankml::slot_file
