#pragma once
// Values of the keys of a GGUF file, as they lie in it.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

namespace bankml::gguf {

// Ids of the format.
enum class ValueType : std::int32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

struct ValueTypeInfo {
  std::string_view name;
  std::size_t bytes;  // of one value; of its length word for a string
};
inline constexpr std::array<ValueTypeInfo, 13> kValueTypes{{{"u8", 1},
                                                            {"i8", 1},
                                                            {"u16", 2},
                                                            {"i16", 2},
                                                            {"u32", 4},
                                                            {"i32", 4},
                                                            {"f32", 4},
                                                            {"bool", 1},
                                                            {"string", 8},
                                                            {"array", 0},
                                                            {"u64", 8},
                                                            {"i64", 8},
                                                            {"f64", 8}}};

inline const ValueTypeInfo& info(ValueType type) noexcept {
  return kValueTypes[static_cast<std::size_t>(type)];
}

struct Value {
  ValueType type = ValueType::u8;  // of the elements, for an array
  bool is_array = false;
  std::uint64_t count = 1;
  std::span<const std::byte> bytes;  // a number, the characters of a string, or the elements as they are stored
};

inline std::string type_name(const Value& value) {
  return value.is_array ? fmt::format("array of {}", info(value.type).name) : std::string(info(value.type).name);
}

template <class T>
T decode(const std::byte* from) noexcept {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

// Calls `use` with the integer at `from`, in its own type; false if `type` isn't an integer type.
template <class F>
bool with_integer(ValueType type, const std::byte* from, F&& use) {
  switch (type) {
    case ValueType::u8:
      use(decode<std::uint8_t>(from));
      return true;
    case ValueType::i8:
      use(decode<std::int8_t>(from));
      return true;
    case ValueType::u16:
      use(decode<std::uint16_t>(from));
      return true;
    case ValueType::i16:
      use(decode<std::int16_t>(from));
      return true;
    case ValueType::u32:
      use(decode<std::uint32_t>(from));
      return true;
    case ValueType::i32:
      use(decode<std::int32_t>(from));
      return true;
    case ValueType::u64:
      use(decode<std::uint64_t>(from));
      return true;
    case ValueType::i64:
      use(decode<std::int64_t>(from));
      return true;
    default:
      return false;
  }
}

}  // namespace bankml::gguf
