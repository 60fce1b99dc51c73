#include "support/gguf_builder.hpp"

#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <utility>

namespace bankml::test {
namespace {

template <class T>
Bytes array_of(std::int32_t type, const std::vector<T>& values) {
  Bytes bytes;
  bytes.number(type).number(std::uint64_t{values.size()});
  for (const T& value : values) {
    if constexpr (std::is_arithmetic_v<T>) {
      bytes.number(value);
    } else {
      bytes.string(value);
    }
  }
  return bytes;
}

}  // namespace

GgufBuilder& GgufBuilder::strings(std::string_view key, const std::vector<std::string>& v) {
  return value(key, kArray, array_of(kString, v));
}
GgufBuilder& GgufBuilder::floats(std::string_view key, const std::vector<float>& v) {
  return value(key, kArray, array_of(kF32, v));
}
GgufBuilder& GgufBuilder::i32s(std::string_view key, const std::vector<std::int32_t>& v) {
  return value(key, kArray, array_of(kI32, v));
}
GgufBuilder& GgufBuilder::bools(std::string_view key, const std::vector<std::uint8_t>& v) {
  return value(key, kArray, array_of(kBool, v));
}

GgufBuilder& GgufBuilder::value(std::string_view key, std::int32_t type, const Bytes& bytes) {
  const auto it = std::find_if(keys_.begin(), keys_.end(), [&](const Key& k) { return k.name == key; });
  if (it != keys_.end()) {
    it->type = type;
    it->bytes = bytes;
  } else {
    keys_.push_back({std::string(key), type, bytes});
  }
  return *this;
}

GgufBuilder& GgufBuilder::duplicate_key(std::string_view key) {
  const auto it = std::find_if(keys_.begin(), keys_.end(), [&](const Key& k) { return k.name == key; });
  if (it == keys_.end()) throw std::logic_error("no such key");
  keys_.push_back(Key(*it));
  return *this;
}

GgufBuilder& GgufBuilder::remove(std::string_view key) {
  std::erase_if(keys_, [&](const Key& k) { return k.name == key; });
  return *this;
}

GgufBuilder& GgufBuilder::tensor(std::string_view name, std::vector<std::int64_t> dims, std::int32_t type,
                                 const std::vector<std::byte>& data, std::int64_t shift) {
  tensors_.push_back({std::string(name), std::move(dims), type, data, shift});
  return *this;
}

GgufBuilder& GgufBuilder::f32_tensor(std::string_view name, std::vector<std::int64_t> dims,
                                     const std::vector<float>& data) {
  const auto bytes = std::as_bytes(std::span(data));
  return tensor(name, std::move(dims), 0, {bytes.begin(), bytes.end()});
}

GgufBuilder& GgufBuilder::remove_tensor(std::string_view name) {
  std::erase_if(tensors_, [&](const Tensor& t) { return t.name == name; });
  return *this;
}

Bytes GgufBuilder::header() const {
  Bytes out;
  out.text("GGUF").number(version);
  out.number(tensors_.size() + extra_tensor_count).number(keys_.size() + extra_key_count);
  for (const Key& key : keys_) out.string(key.name).number(key.type).raw(key.bytes.data());
  std::size_t offset = 0;
  for (const Tensor& tensor : tensors_) {
    out.string(tensor.name).number(static_cast<std::uint32_t>(tensor.dims.size()));
    for (const std::int64_t dim : tensor.dims) out.number(dim);
    out.number(tensor.type).number(offset + static_cast<std::size_t>(tensor.shift));
    offset = (offset + tensor.data.size() + alignment - 1) / alignment * alignment;
  }
  return out;
}

std::size_t GgufBuilder::header_bytes() const {
  return header().size();
}

std::vector<std::byte> GgufBuilder::build() const {
  Bytes out = header();
  for (const Tensor& tensor : tensors_) out.pad(alignment).raw(tensor.data);
  return out.data();
}

TemporaryFile::TemporaryFile(std::span<const std::byte> bytes) {
  std::string name = (std::filesystem::temp_directory_path() / "bankml-test-XXXXXX").string();
  const int file = ::mkstemp(name.data());
  if (file < 0) throw std::runtime_error("can't create a temporary file");
  ::close(file);
  path_ = name;
  std::ofstream out(path_, std::ios::binary);
  out.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!out.flush()) throw std::runtime_error("can't write a temporary file");
}

TemporaryFile::~TemporaryFile() {
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

}  // namespace bankml::test
