// A model file of any bytes is read or refused with an Error.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "bankml/base/error.hpp"
#include "bankml/base/log.hpp"
#include "bankml/model/config.hpp"
#include "bankml/model/gguf.hpp"

namespace {

// Touches the ends of every tensor, so that a sanitizer sees one that lies outside of the file.
std::uint64_t touch(const bankml::GgufFile& file) {
  std::uint64_t sum = 0;
  for (const bankml::GgufTensor& tensor : file.tensors()) {
    if (tensor.data.empty()) continue;
    sum += std::to_integer<std::uint64_t>(tensor.data.front()) + std::to_integer<std::uint64_t>(tensor.data.back());
    sum += static_cast<std::uint64_t>(tensor.rows());
  }
  return sum;
}

template <class F>
void try_to(F&& operation) {
  try {
    operation();
  } catch (const bankml::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  bankml::set_log_level(bankml::LogLevel::error);
  try_to([&] {
    const auto file = bankml::GgufFile::parse(std::as_bytes(std::span(data, size)), "fuzz");
    if (touch(file) == ~std::uint64_t{0}) return;  // the sum is used, so that the reads happen
    try_to([&] { bankml::read_config(file); });
    try_to([&] { bankml::read_vocabulary(file); });
    try_to([&] { bankml::read_chat_template(file); });
  });
  return 0;
}
