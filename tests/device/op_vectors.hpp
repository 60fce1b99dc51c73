#pragma once
// Reads the recorded inputs and outputs of llama-server b11192's operators in tests/data/ops/ ("OPVEC001": named
// arrays, little endian, first dimension contiguous).
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

namespace bankml::test {

struct OpArray {
  std::vector<std::uint32_t> dims;
  std::vector<std::byte> bytes;
  template <class T>
  const T* as() const noexcept {
    return reinterpret_cast<const T*>(bytes.data());
  }
  template <class T>
  std::size_t size() const noexcept {
    return bytes.size() / sizeof(T);
  }
};

using OpVectors = std::map<std::string, OpArray>;

// `name` without ".bin"; throws std::runtime_error if the file is missing or damaged.
inline OpVectors read_op_vectors(const std::string& name) {
  const std::string path = std::string(BANKML_TEST_DATA) + "/ops/" + name + ".bin";
  std::ifstream file(path, std::ios::binary);
  const auto read = [&](void* to, std::size_t bytes) {
    if (!file.read(static_cast<char*>(to), static_cast<std::streamsize>(bytes)))
      throw std::runtime_error("can't read " + path);
  };
  const auto number = [&] {
    std::uint32_t value = 0;
    read(&value, sizeof value);
    return value;
  };
  char magic[8];
  read(magic, sizeof magic);
  if (std::memcmp(magic, "OPVEC001", sizeof magic) != 0) throw std::runtime_error(path + " isn't a file of op vectors");
  OpVectors vectors;
  for (std::uint32_t left = number(); left > 0; --left) {
    std::string key(number(), '\0');
    read(key.data(), key.size());
    number();  // the element type: the reader of the array knows it
    OpArray array;
    array.dims.resize(number());
    for (std::uint32_t& dim : array.dims) dim = number();
    std::uint64_t bytes = 0;
    read(&bytes, sizeof bytes);
    array.bytes.resize(bytes);
    read(array.bytes.data(), bytes);
    vectors.emplace(std::move(key), std::move(array));
  }
  return vectors;
}

}  // namespace bankml::test
