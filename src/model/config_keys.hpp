#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/model/gguf.hpp"

namespace bankml {

// The keys of one architecture, with its name as their prefix.
class ConfigKeys {
 public:
  static constexpr int kMaxCount = std::numeric_limits<int>::max();

  ConfigKeys(const GgufFile& file, std::string_view architecture) : file_(file), architecture_(architecture) {}

  const GgufFile& file() const noexcept { return file_; }
  std::string full(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

  template <class... Args>
  [[noreturn]] void fail(std::string_view key, fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::invalid_request, fmt::format("{}: key '{}': {}", file_.name(), full(key),
                                                        fmt::format(format, std::forward<Args>(args)...)));
  }

  std::optional<int> find_count(std::string_view key, int low, int high = kMaxCount) const {
    const auto stored = file_.unsigned_value(full(key));
    return stored ? std::optional(checked(key, *stored, low, high)) : std::nullopt;
  }
  int count(std::string_view key, int low, int high = kMaxCount) const {
    const auto found = find_count(key, low, high);
    if (!found) fail(key, "missing");
    return *found;
  }
  std::optional<float> find_number(std::string_view key) const { return file_.float_value(full(key)); }
  // For scales and caps, where 0 stands for none.
  float number(std::string_view key, float otherwise) const { return find_number(key).value_or(otherwise); }
  bool flag(std::string_view key, bool otherwise) const { return file_.bool_value(full(key)).value_or(otherwise); }
  std::optional<std::string_view> find_text(std::string_view key) const { return file_.string_value(full(key)); }

  // One value for all layers, or an array with one for each.
  std::optional<std::vector<int>> find_per_layer(std::string_view key, int layers, int low) const {
    const auto size = file_.array_size(full(key));
    if (!size) {
      const auto one = find_count(key, low);
      return one ? std::optional(std::vector<int>(static_cast<std::size_t>(layers), *one)) : std::nullopt;
    }
    if (std::cmp_not_equal(*size, layers)) fail(key, "expected an array of {} elements, found {}", layers, *size);
    const auto stored = file_.integers(full(key));
    std::vector<int> out;
    for (const std::int64_t value : *stored) out.push_back(checked(key, value, low, kMaxCount));
    return out;
  }
  std::vector<int> per_layer(std::string_view key, int layers, int low) const {
    auto found = find_per_layer(key, layers, low);
    if (!found) fail(key, "missing");
    return std::move(*found);
  }

 private:
  template <class T>
  int checked(std::string_view key, T value, int low, int high) const {
    if (std::cmp_less(value, low) || std::cmp_greater(value, high)) {
      fail(key, "expected a value from {} to {}, found {}", low, high, value);
    }
    return static_cast<int>(value);
  }

  const GgufFile& file_;
  std::string_view architecture_;
};

}  // namespace bankml
