#pragma once
// What a GGUF file holds, checked (gguf_parse.cpp), for the questions that are asked of it (gguf.cpp).
#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/model/gguf.hpp"
#include "base/printable.hpp"
#include "model/file_mapping.hpp"
#include "model/gguf_cursor.hpp"
#include "model/gguf_value.hpp"

namespace bankml {

struct GgufFile::Impl {
  std::string name;
  FileMapping mapping;  // empty for bytes in memory
  std::span<const std::byte> bytes;
  std::unordered_map<std::string_view, gguf::Value> values;  // keys lie in `bytes`
  std::vector<GgufTensor> tensors;
  std::unordered_map<std::string_view, std::size_t> tensor_index;

  void parse();
  gguf::Value read_value(GgufCursor& in, std::string_view key) const;
  void read_key_values(GgufCursor& in, std::uint64_t count);
  std::uint32_t alignment() const;
  void read_tensors(GgufCursor& in, std::uint64_t count);
  GgufTensor read_tensor(GgufCursor& in, std::uint64_t index) const;
  std::uint64_t checked_bytes(const GgufTensor& tensor) const;
  const gguf::Value* find(std::string_view key) const;

  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::invalid_request,
                fmt::format("{}: {}", name, fmt::format(format, std::forward<Args>(args)...)));
  }
  [[noreturn]] void wrong_type(std::string_view key, std::string_view expected, const gguf::Value& value) const {
    fail("key {}: expected {}, found {}", printable(key), expected, gguf::type_name(value));
  }
  template <class T>
  std::optional<T> integer(std::string_view key) const;
  template <class T>
  std::optional<std::vector<T>> array(std::string_view key, std::string_view expected, auto convert) const;
};

}  // namespace bankml
