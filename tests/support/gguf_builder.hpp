#pragma once
// Writes GGUF files in memory, right ones and, where a test wants that, wrong ones.
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace bankml::test {

class Bytes {
 public:
  template <class T>
  Bytes& number(T value) {
    static_assert(std::is_arithmetic_v<T>);
    const auto part = std::as_bytes(std::span(&value, 1));
    data_.insert(data_.end(), part.begin(), part.end());
    return *this;
  }
  Bytes& text(std::string_view value) { return raw(std::as_bytes(std::span(value))); }  // without a length word
  Bytes& string(std::string_view value) { return number(std::uint64_t{value.size()}).text(value); }
  Bytes& raw(std::span<const std::byte> value) {
    data_.insert(data_.end(), value.begin(), value.end());
    return *this;
  }
  Bytes& pad(std::size_t alignment) {
    while (data_.size() % alignment != 0) data_.push_back(std::byte{0});
    return *this;
  }
  std::size_t size() const noexcept { return data_.size(); }
  const std::vector<std::byte>& data() const noexcept { return data_; }

 private:
  std::vector<std::byte> data_;
};

// Ids of value types, as in the format.
inline constexpr std::int32_t kU8 = 0, kI8 = 1, kU16 = 2, kI16 = 3, kU32 = 4, kI32 = 5, kF32 = 6, kBool = 7,
                              kString = 8, kArray = 9, kU64 = 10, kI64 = 11, kF64 = 12;

class GgufBuilder {
 public:
  std::uint32_t version = 3;
  std::size_t alignment = 32;            // of the data; the key is the caller's
  std::uint64_t extra_tensor_count = 0;  // added to the number of tensors in the header
  std::uint64_t extra_key_count = 0;

  GgufBuilder& u8(std::string_view key, std::uint8_t v) { return value(key, kU8, Bytes().number(v)); }
  GgufBuilder& u32(std::string_view key, std::uint32_t v) { return value(key, kU32, Bytes().number(v)); }
  GgufBuilder& i32(std::string_view key, std::int32_t v) { return value(key, kI32, Bytes().number(v)); }
  GgufBuilder& u64(std::string_view key, std::uint64_t v) { return value(key, kU64, Bytes().number(v)); }
  GgufBuilder& i64(std::string_view key, std::int64_t v) { return value(key, kI64, Bytes().number(v)); }
  GgufBuilder& f32(std::string_view key, float v) { return value(key, kF32, Bytes().number(v)); }
  GgufBuilder& boolean(std::string_view key, bool v) { return value(key, kBool, Bytes().number(std::uint8_t{v})); }
  GgufBuilder& string(std::string_view key, std::string_view v) { return value(key, kString, Bytes().string(v)); }
  GgufBuilder& strings(std::string_view key, const std::vector<std::string>& v);
  GgufBuilder& floats(std::string_view key, const std::vector<float>& v);
  GgufBuilder& i32s(std::string_view key, const std::vector<std::int32_t>& v);
  GgufBuilder& bools(std::string_view key, const std::vector<std::uint8_t>& v);
  // Any type with any bytes. A key that is there already keeps its place and gets the new value.
  GgufBuilder& value(std::string_view key, std::int32_t type, const Bytes& bytes);
  GgufBuilder& duplicate_key(std::string_view key);  // writes the record of this key twice
  GgufBuilder& remove(std::string_view key);

  // `shift` is added to the right offset, `dims` and `type` need not be possible.
  GgufBuilder& tensor(std::string_view name, std::vector<std::int64_t> dims, std::int32_t type,
                      const std::vector<std::byte>& data, std::int64_t shift = 0);
  GgufBuilder& f32_tensor(std::string_view name, std::vector<std::int64_t> dims, const std::vector<float>& data);
  GgufBuilder& remove_tensor(std::string_view name);

  std::vector<std::byte> build() const;
  std::size_t header_bytes() const;  // up to the padding before the data

 private:
  struct Key {
    std::string name;
    std::int32_t type;
    Bytes bytes;
  };
  struct Tensor {
    std::string name;
    std::vector<std::int64_t> dims;
    std::int32_t type;
    std::vector<std::byte> data;
    std::int64_t shift;
  };
  Bytes header() const;
  std::vector<Key> keys_;
  std::vector<Tensor> tensors_;
};

// A file that is removed with the object.
class TemporaryFile {
 public:
  explicit TemporaryFile(std::span<const std::byte> bytes);
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile();
  const std::filesystem::path& path() const noexcept { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace bankml::test
