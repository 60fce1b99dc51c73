#include "server/fields.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <boost/json/parse.hpp>
#include <boost/system/error_code.hpp>
#include <cmath>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

// Deeper bodies are refused as malformed: reading and destroying nested values recurses.
constexpr std::size_t kMaxDepth = 500;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

constexpr double kTwoTo63 = 9223372036854775808.0;

[[noreturn]] void throw_type(std::string_view name, std::string_view expected, const boost::json::value& value) {
  throw Error(ErrorKind::invalid_request,
              fmt::format("field '{}': expected {}, got {}", name, expected, json_type_name(value)));
}

// JSON has no infinity: one in the result was a number too large to read.
bool is_finite(const boost::json::value& value) noexcept {
  if (const double* number = value.if_double()) return std::isfinite(*number);
  if (const auto* array = value.if_array()) return std::ranges::all_of(*array, is_finite);
  const auto* object = value.if_object();
  return object == nullptr ||
         std::ranges::all_of(*object, [](const auto& member) { return is_finite(member.value()); });
}

}  // namespace

boost::json::value parse_json(std::string_view body) {
  boost::json::parse_options options;
  options.max_depth = kMaxDepth;
  boost::system::error_code error;
  if (body.starts_with(kByteOrderMark)) body.remove_prefix(kByteOrderMark.size());
  boost::json::value value = boost::json::parse({body.data(), body.size()}, error, {}, options);
  if (error) throw Error(ErrorKind::internal, fmt::format("the request body is not valid JSON: {}", error.message()));
  if (!is_finite(value)) {
    throw Error(ErrorKind::internal, "the request body is not valid JSON: it holds a number that is out of range");
  }
  return value;
}

boost::json::object parse_body(std::string_view body) {
  boost::json::value value = parse_json(body);
  if (!value.is_object()) return {};
  return std::move(value.get_object());
}

std::string_view json_type_name(const boost::json::value& value) noexcept {
  switch (value.kind()) {
    case boost::json::kind::bool_:
      return "boolean";
    case boost::json::kind::int64:
    case boost::json::kind::uint64:
    case boost::json::kind::double_:
      return "number";
    case boost::json::kind::string:
      return "string";
    case boost::json::kind::array:
      return "array";
    case boost::json::kind::object:
      return "object";
    case boost::json::kind::null:
      break;
  }
  return "null";
}

std::optional<std::int64_t> as_integer(const boost::json::value& value) noexcept {
  constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();
  if (const bool* flag = value.if_bool()) return *flag ? 1 : 0;
  if (const std::int64_t* number = value.if_int64()) return *number;
  if (value.is_uint64()) return kMax;  // a uint64 is stored only if it fits no int64
  const double* number = value.if_double();
  if (number == nullptr || std::isnan(*number)) return std::nullopt;
  if (*number >= kTwoTo63) return kMax;
  if (*number <= -kTwoTo63) return std::numeric_limits<std::int64_t>::min();
  return static_cast<std::int64_t>(*number);
}

std::optional<double> as_number(const boost::json::value& value) noexcept {
  if (const double* number = value.if_double()) return *number;
  if (const std::uint64_t* number = value.if_uint64()) return static_cast<double>(*number);
  if (const auto number = as_integer(value)) return static_cast<double>(*number);
  return std::nullopt;
}

const boost::json::value* Fields::find(std::string_view name) const noexcept {
  const boost::json::value* value = object_.if_contains({name.data(), name.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::optional<Fields::Found> Fields::first(Names names) const noexcept {
  for (const std::string_view name : names) {
    if (const auto* value = find(name)) return Found{name, value};
  }
  return std::nullopt;
}

std::int64_t Fields::integer(const Found& found) const {
  const auto number = as_integer(*found.value);
  if (!number) throw_type(found.name, "a number", *found.value);
  return *number;
}

void Fields::read(std::string_view name, bool& out) const {
  const auto* value = find(name);
  if (value == nullptr) return;
  if (!value->is_bool()) throw_type(name, "true or false", *value);
  out = value->get_bool();
}

void Fields::read(std::string_view name, std::string& out) const {
  const auto* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string()) throw_type(name, "a string", *value);
  out = value->get_string();
}

void Fields::read_checked(std::string_view name, std::int64_t& out, std::int64_t min) const {
  const auto* value = find(name);
  if (value == nullptr) return;
  if (value->is_bool()) throw_type(name, "a number", *value);
  const std::int64_t number = integer({name, value});
  const double* real = value->if_double();
  if (number < min || value->is_uint64() || (real != nullptr && *real >= kTwoTo63)) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("field '{}': expected a value from {} to {}, got {}", name, min,
                            std::numeric_limits<std::int64_t>::max(), as_number(*value).value_or(0)));
  }
  out = number;
}

void Fields::read_checked(Names names, int& out, int min, int max) const {
  const auto found = first(names);
  if (!found) return;
  const std::int64_t number = integer(*found);
  if (number < min || number > max) {
    throw Error(ErrorKind::invalid_request,
                fmt::format("field '{}': expected a value from {} to {}, got {}", found->name, min, max, number));
  }
  out = static_cast<int>(number);
}

void Fields::read_clamped(Names names, int& out, int min, int max) const {
  const auto found = first(names);
  if (found) out = static_cast<int>(std::clamp<std::int64_t>(integer(*found), min, max));
}

void Fields::read_clamped(std::string_view name, float& out, float min, float max) const {
  const auto* value = find(name);
  if (value == nullptr) return;
  const auto number = as_number(*value);
  if (!number) throw_type(name, "a number", *value);
  if (std::isnan(*number)) throw Error(ErrorKind::invalid_request, fmt::format("field '{}': not a number", name));
  constexpr float kLargest = std::numeric_limits<float>::max();
  out = *number > kLargest ? max : static_cast<float>(std::clamp<double>(*number, min, std::min(max, kLargest)));
}

void Fields::read_wrapped(std::string_view name, std::uint32_t& out) const {
  const auto* value = find(name);
  if (value == nullptr) return;
  if (const std::uint64_t* number = value->if_uint64()) {
    out = static_cast<std::uint32_t>(*number);
  } else {
    out = static_cast<std::uint32_t>(integer({name, value}));
  }
}

std::vector<std::string> string_elements(const boost::json::array& array, std::string_view field) {
  std::vector<std::string> strings;
  strings.reserve(array.size());
  for (const auto& element : array) {
    if (!element.is_string()) throw_type(field, "only strings in the array", element);
    strings.emplace_back(element.get_string());
  }
  return strings;
}

}  // namespace bankml
