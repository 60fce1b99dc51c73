// Reading a GGUF file: everything is checked before anything of it is used (docs/gguf.md).
#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "model/gguf_impl.hpp"

namespace bankml {
namespace {

using gguf::decode;
using gguf::info;
using gguf::kValueTypes;
using gguf::Value;
using gguf::ValueType;

static_assert(std::endian::native == std::endian::little, "GGUF files are read as they lie in memory");

constexpr std::string_view kMagic = "GGUF";
constexpr std::uint32_t kOldestVersion = 2, kNewestVersion = 3;
constexpr std::size_t kHeaderBytes = 24;           // magic, version, two counts
constexpr std::uint64_t kMinKeyValueBytes = 13;    // length of the key, type, a value of one byte
constexpr std::uint64_t kMinTensorInfoBytes = 24;  // length of the name, number of dimensions, type, offset
constexpr std::uint64_t kMaxArrayLength = std::uint64_t{1} << 30;
constexpr std::size_t kMaxTensorName = 63;
constexpr std::uint32_t kMaxDims = 4;
constexpr std::uint32_t kDefaultAlignment = 32;
constexpr std::uint32_t kMinAlignment = 8;  // the GGUF specification: a multiple of 8

// Type ids that the format defines and bankmld does not compute with, so that the message can name them.
std::string_view unsupported_type_name(std::int32_t id) noexcept {
  constexpr std::pair<std::int32_t, std::string_view> kNames[] = {
      {9, "Q8_1"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"}, {21, "IQ3_S"},
      {22, "IQ2_S"}, {24, "I8"},    {25, "I16"},     {26, "I32"},    {27, "I64"},     {28, "F64"},   {29, "IQ1_M"},
      {34, "TQ1_0"}, {35, "TQ2_0"}, {40, "NVFP4"},   {41, "Q1_0"},   {42, "Q2_0"}};
  for (const auto& [known, name] : kNames) {
    if (known == id) return name;
  }
  return {};
}

std::uint64_t align_up(std::uint64_t n, std::uint64_t alignment) noexcept {
  return (n + alignment - 1) & ~(alignment - 1);
}

}  // namespace

void GgufFile::Impl::parse() {
  if (bytes.size() < kHeaderBytes) {
    fail("expected a GGUF header of {} bytes, found a file of {} bytes", kHeaderBytes, bytes.size());
  }
  GgufCursor in(bytes, name);
  const auto magic = in.take(kMagic.size(), "magic");
  if (std::memcmp(magic.data(), kMagic.data(), kMagic.size()) != 0)
    fail("expected a GGUF file, found another magic number");
  const auto version = in.read<std::uint32_t>("version");
  if (version < kOldestVersion || version > kNewestVersion) {
    const bool swapped = version != 0 && (version & 0xffff) == 0;
    throw Error(ErrorKind::unsupported,
                fmt::format("{}: expected GGUF version {} or {}, found {}{}", name, kOldestVersion, kNewestVersion,
                            version, swapped ? " (is this a file for big-endian machines?)" : ""));
  }
  const auto tensor_count = in.read<std::uint64_t>("number of tensors");
  const auto value_count = in.read<std::uint64_t>("number of keys");
  if (tensor_count > in.remaining() / kMinTensorInfoBytes) {
    fail("expected at most {} tensors in a file of this size, found a count of {}",
         in.remaining() / kMinTensorInfoBytes, tensor_count);
  }
  if (value_count > in.remaining() / kMinKeyValueBytes) {
    fail("expected at most {} keys in a file of this size, found a count of {}", in.remaining() / kMinKeyValueBytes,
         value_count);
  }
  read_key_values(in, value_count);
  read_tensors(in, tensor_count);
}

void GgufFile::Impl::read_key_values(GgufCursor& in, std::uint64_t count) {
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::string_view key = in.string("key");
    if (key.empty()) fail("key {} of {}: expected a name, found none", i + 1, count);
    if (!values.try_emplace(key, read_value(in, key)).second) fail("key {} occurs twice", printable(key));
  }
}

Value GgufFile::Impl::read_value(GgufCursor& in, std::string_view key) const {
  const auto read_type = [&] {
    const auto id = in.read<std::int32_t>("value type");
    if (id < 0 || id >= static_cast<std::int32_t>(kValueTypes.size())) {
      fail("key {}: expected a value type from 0 to {}, found {}", printable(key), kValueTypes.size() - 1, id);
    }
    return static_cast<ValueType>(id);
  };
  Value value;
  value.type = read_type();
  if (value.type == ValueType::string) {
    const std::string_view text = in.string("string value");
    value.bytes = std::as_bytes(std::span(text));
    return value;
  }
  if (value.type == ValueType::array) {
    value.is_array = true;
    value.type = read_type();
    if (value.type == ValueType::array) fail("key {}: arrays of arrays are not allowed", printable(key));
    value.count = in.read<std::uint64_t>("array length");
    if (value.count > kMaxArrayLength || value.count * info(value.type).bytes > in.remaining()) {
      fail("key {}: expected an array that fits into the remaining {} bytes, found {} elements of {}", printable(key),
           in.remaining(), value.count, info(value.type).name);
    }
  }
  if (value.is_array && value.type == ValueType::string) {
    const std::size_t start = in.position();
    for (std::uint64_t i = 0; i < value.count; ++i) in.string("string in an array");
    value.bytes = bytes.subspan(start, in.position() - start);
  } else {
    value.bytes = in.take(value.count * info(value.type).bytes, "value");
  }
  if (value.type == ValueType::boolean &&
      std::any_of(value.bytes.begin(), value.bytes.end(), [](std::byte b) { return b > std::byte{1}; })) {
    fail("key {}: expected a bool of 0 or 1, found another byte", printable(key));
  }
  return value;
}

std::uint32_t GgufFile::Impl::alignment() const {
  constexpr std::string_view kKey = "general.alignment";
  const Value* const value = find(kKey);
  if (value == nullptr) return kDefaultAlignment;
  if (value->is_array || value->type != ValueType::u32) wrong_type(kKey, "u32", *value);
  const auto alignment = decode<std::uint32_t>(value->bytes.data());
  if (!std::has_single_bit(alignment) || alignment < kMinAlignment) {
    fail("key '{}': expected a power of two of at least {}, found {}", kKey, kMinAlignment, alignment);
  }
  return alignment;
}

void GgufFile::Impl::read_tensors(GgufCursor& in, std::uint64_t count) {
  const std::uint64_t alignment = this->alignment();
  std::vector<std::uint64_t> offsets;
  std::uint64_t end = 0;  // of the tensors so far, relative to the data section
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::size_t start = in.position();
    GgufTensor tensor = read_tensor(in, i);
    const auto offset = in.read<std::uint64_t>("tensor offset");
    // Tensors lie one after the other in the order of their infos, which also rules out that two overlap.
    const std::uint64_t expected = align_up(end, alignment);
    if (offset != expected) {
      fail("tensor {}: expected offset {}, found {}", printable(tensor.name), expected, offset);
    }
    const std::uint64_t size = checked_bytes(tensor);
    if (expected > bytes.size() || size > bytes.size() - expected) {
      fail("tensor {}: expected {} bytes at offset {} of the data, found a file of {} bytes", printable(tensor.name),
           size, offset, bytes.size());
    }
    end = expected + size;
    offsets.push_back(offset);
    tensor.data = {bytes.data(), size};  // moved to its place once the start of the data is known
    const std::string_view key(reinterpret_cast<const char*>(bytes.data()) + start + sizeof(std::uint64_t),
                               tensor.name.size());
    if (!tensor_index.try_emplace(key, tensors.size()).second) fail("tensor {} occurs twice", printable(key));
    tensors.push_back(std::move(tensor));
  }
  if (tensors.empty()) return;
  const std::uint64_t data_start = align_up(in.position(), alignment);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::uint64_t size = tensors[i].data.size();
    if (data_start > bytes.size() || offsets[i] + size > bytes.size() - data_start) {
      fail("tensor {}: expected {} bytes at byte {} of the file, found a file of {} bytes", printable(tensors[i].name),
           size, data_start + offsets[i], bytes.size());
    }
    tensors[i].data = bytes.subspan(data_start + offsets[i], size);
  }
}

GgufTensor GgufFile::Impl::read_tensor(GgufCursor& in, std::uint64_t index) const {
  const std::string_view tensor_name = in.string("tensor name");
  if (tensor_name.empty() || tensor_name.size() > kMaxTensorName) {
    fail("tensor {}: expected a name of 1 to {} bytes, found {} bytes", index, kMaxTensorName, tensor_name.size());
  }
  const std::string shown = printable(tensor_name);
  GgufTensor tensor{.name = std::string(tensor_name), .type = DType::f32, .dims = {}, .data = {}};
  const auto dims = in.read<std::uint32_t>("number of dimensions");
  if (dims > kMaxDims) fail("tensor {}: expected at most {} dimensions, found {}", shown, kMaxDims, dims);
  std::int64_t elements = 1;
  for (std::uint32_t i = 0; i < dims; ++i) {
    const auto dim = in.read<std::int64_t>("dimension");
    if (dim < 1) fail("tensor {}: expected dimensions of at least 1, found {}", shown, dim);
    if (dim > std::numeric_limits<std::int64_t>::max() / elements) fail("tensor {}: more than 2^63 elements", shown);
    elements *= dim;
    tensor.dims.push_back(dim);
  }
  if (dims == 0) tensor.dims.push_back(1);  // a scalar
  const auto type = in.read<std::int32_t>("tensor type");
  const DTypeInfo* const dtype = find_dtype(type);
  if (dtype == nullptr) {
    const std::string_view known = unsupported_type_name(type);
    if (known.empty()) fail("tensor {}: expected a tensor type of the format, found id {}", shown, type);
    throw Error(ErrorKind::unsupported,
                fmt::format("{}: tensor {}: weights of type {} are not supported", name, shown, known));
  }
  tensor.type = static_cast<DType>(type);
  if (tensor.row_length() % dtype->block_len != 0) {
    fail("tensor {}: expected rows of a multiple of {} elements for {}, found {}", shown, dtype->block_len, dtype->name,
         tensor.row_length());
  }
  return tensor;
}

std::uint64_t GgufFile::Impl::checked_bytes(const GgufTensor& tensor) const {
  const DTypeInfo& dtype = dtype_info(tensor.type);
  const auto blocks = static_cast<std::uint64_t>(tensor.row_length() / dtype.block_len * tensor.rows());
  const auto block_bytes = static_cast<std::uint64_t>(dtype.block_bytes);
  if (blocks > bytes.size() / block_bytes) {
    fail("tensor {}: expected {} blocks of {} bytes, found a file of {} bytes", printable(tensor.name), blocks,
         block_bytes, bytes.size());
  }
  return blocks * block_bytes;
}

}  // namespace bankml
