#include "bankml/model/gguf.hpp"

#include <cmath>
#include <limits>

#include "model/gguf_impl.hpp"

namespace bankml {
namespace {

using gguf::decode;
using gguf::info;
using gguf::Value;
using gguf::ValueType;
using gguf::with_integer;

}  // namespace

std::int64_t GgufTensor::rows() const noexcept {
  std::int64_t n = 1;
  for (std::size_t i = 1; i < dims.size(); ++i) n *= dims[i];
  return n;
}

const Value* GgufFile::Impl::find(std::string_view key) const {
  const auto it = values.find(key);
  return it == values.end() ? nullptr : &it->second;
}

template <class T>
std::optional<T> GgufFile::Impl::integer(std::string_view key) const {
  const Value* const value = find(key);
  if (value == nullptr) return std::nullopt;
  std::optional<T> result;
  const auto take = [&](auto stored) {
    if (!std::in_range<T>(stored)) {
      fail("key {}: expected a value from {} to {}, found {}", printable(key), std::numeric_limits<T>::min(),
           std::numeric_limits<T>::max(), stored);
    }
    result = static_cast<T>(stored);
  };
  if (value->is_array || !with_integer(value->type, value->bytes.data(), take)) wrong_type(key, "an integer", *value);
  return result;
}

// `convert(type, address, out)` appends one element, or returns false for a type that it doesn't take.
template <class T>
std::optional<std::vector<T>> GgufFile::Impl::array(std::string_view key, std::string_view expected,
                                                    auto convert) const {
  const Value* const value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array || value->type == ValueType::string) wrong_type(key, expected, *value);
  std::vector<T> out;
  out.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    if (!convert(value->type, value->bytes.data() + i * info(value->type).bytes, out))
      wrong_type(key, expected, *value);
  }
  return out;
}

GgufFile::GgufFile(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
GgufFile::~GgufFile() = default;
GgufFile::GgufFile(GgufFile&&) noexcept = default;
GgufFile& GgufFile::operator=(GgufFile&&) noexcept = default;

GgufFile GgufFile::open(const std::filesystem::path& path) {
  auto impl = std::make_unique<Impl>();
  impl->name = path.string();
  impl->mapping = FileMapping(path);
  impl->bytes = impl->mapping.bytes();
  impl->parse();
  return GgufFile(std::move(impl));
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string_view name) {
  auto impl = std::make_unique<Impl>();
  impl->name = name;
  impl->bytes = bytes;
  impl->parse();
  return GgufFile(std::move(impl));
}

bool GgufFile::has(std::string_view key) const {
  return impl_->find(key) != nullptr;
}

std::optional<std::uint64_t> GgufFile::unsigned_value(std::string_view key) const {
  return impl_->integer<std::uint64_t>(key);
}

std::optional<std::int64_t> GgufFile::signed_value(std::string_view key) const {
  return impl_->integer<std::int64_t>(key);
}

std::optional<float> GgufFile::float_value(std::string_view key) const {
  const Value* const value = impl_->find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type != ValueType::f32) impl_->wrong_type(key, "f32", *value);
  const auto result = decode<float>(value->bytes.data());
  if (!std::isfinite(result)) impl_->fail("key {}: expected a finite number, found {}", printable(key), result);
  return result;
}

std::optional<bool> GgufFile::bool_value(std::string_view key) const {
  const Value* const value = impl_->find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type != ValueType::boolean) impl_->wrong_type(key, "bool", *value);
  return value->bytes[0] != std::byte{0};
}

std::optional<std::string_view> GgufFile::string_value(std::string_view key) const {
  const Value* const value = impl_->find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_array || value->type != ValueType::string) impl_->wrong_type(key, "string", *value);
  return std::string_view(reinterpret_cast<const char*>(value->bytes.data()), value->bytes.size());
}

std::optional<std::vector<std::string>> GgufFile::strings(std::string_view key) const {
  const Value* const value = impl_->find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array || value->type != ValueType::string) impl_->wrong_type(key, "array of string", *value);
  std::vector<std::string> out;
  out.reserve(value->count);
  GgufCursor in(value->bytes, impl_->name);
  for (std::uint64_t i = 0; i < value->count; ++i) out.emplace_back(in.string("string in an array"));
  return out;
}

std::optional<std::vector<float>> GgufFile::floats(std::string_view key) const {
  return impl_->array<float>(key, "array of f32", [](ValueType type, const std::byte* from, std::vector<float>& out) {
    if (type == ValueType::f32) {
      out.push_back(decode<float>(from));
      return true;
    }
    return with_integer(type, from, [&](auto stored) { out.push_back(static_cast<float>(stored)); });
  });
}

std::optional<std::vector<std::int64_t>> GgufFile::integers(std::string_view key) const {
  return impl_->array<std::int64_t>(key, "array of integers",
                                    [&](ValueType type, const std::byte* from, std::vector<std::int64_t>& out) {
                                      if (type == ValueType::boolean) type = ValueType::u8;  // one byte, 0 or 1
                                      return with_integer(type, from, [&](auto stored) {
                                        if (!std::in_range<std::int64_t>(stored))
                                          impl_->fail("key {}: {} exceeds 64 signed bits", printable(key), stored);
                                        out.push_back(static_cast<std::int64_t>(stored));
                                      });
                                    });
}

std::optional<std::uint64_t> GgufFile::array_size(std::string_view key) const {
  const Value* const value = impl_->find(key);
  return value != nullptr && value->is_array ? std::optional(value->count) : std::nullopt;
}

std::span<const GgufTensor> GgufFile::tensors() const noexcept {
  return impl_->tensors;
}

const GgufTensor* GgufFile::find_tensor(std::string_view name) const noexcept {
  const auto it = impl_->tensor_index.find(name);
  return it == impl_->tensor_index.end() ? nullptr : &impl_->tensors[it->second];
}

std::size_t GgufFile::bytes() const noexcept {
  return impl_->bytes.size();
}
const std::string& GgufFile::name() const noexcept {
  return impl_->name;
}
void GgufFile::discard(std::span<const std::byte> bytes) const noexcept {
  impl_->mapping.discard(bytes);
}

}  // namespace bankml
