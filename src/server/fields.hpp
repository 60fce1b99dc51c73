#pragma once
// Typed reading of the fields of a JSON request by the rules of docs/http-api.md 7: null is absent, unknown fields are
// ignored, numbers may be integers, floats (truncated for integer fields) or booleans. Everything throws
// Error(invalid_request) with a message that names the field, what was expected and what came.
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bankml {

// Parses a request body. Throws Error(internal), which is llama-server's answer to a body that is not JSON, and to a
// number that no double holds.
boost::json::value parse_json(std::string_view body);
// The same for what should be an object: a body that is none has no fields.
boost::json::object parse_body(std::string_view body);

// "string", "number", "boolean", "array", "object" or "null".
std::string_view json_type_name(const boost::json::value& value) noexcept;

// The value as an integer: fractions are cut off, values out of range saturate; nullopt if it is neither a number nor a
// boolean.
std::optional<std::int64_t> as_integer(const boost::json::value& value) noexcept;
std::optional<double> as_number(const boost::json::value& value) noexcept;

class Fields {
 public:
  explicit Fields(const boost::json::object& object) noexcept : object_(object) {}

  // nullptr if the field is absent or null.
  const boost::json::value* find(std::string_view name) const noexcept;

  // A field with its aliases, the first that is present wins.
  using Names = std::initializer_list<std::string_view>;

  static constexpr int kMaxInt = std::numeric_limits<int>::max();
  static constexpr int kMinInt = std::numeric_limits<int>::min();

  // Each reads into `out`, which keeps its value if the field is absent.
  void read(std::string_view name, bool& out) const;
  void read(std::string_view name, std::string& out) const;
  void read_checked(Names names, int& out, int min, int max = kMaxInt) const;
  // No booleans here, and nothing beyond the range of the type.
  void read_checked(std::string_view name, std::int64_t& out, std::int64_t min) const;
  void read_clamped(Names names, int& out, int min = kMinInt, int max = kMaxInt) const;
  // A number above the largest float is infinity where `max` is.
  void read_clamped(std::string_view name, float& out, float min = std::numeric_limits<float>::lowest(),
                    float max = std::numeric_limits<float>::max()) const;
  // Any number, its low 32 bits.
  void read_wrapped(std::string_view name, std::uint32_t& out) const;

 private:
  struct Found {
    std::string_view name;
    const boost::json::value* value;
  };
  std::optional<Found> first(Names names) const noexcept;
  std::int64_t integer(const Found& found) const;

  const boost::json::object& object_;
};

// The elements of an array of strings. Throws Error(invalid_request) for an element of another type, naming `field`.
std::vector<std::string> string_elements(const boost::json::array& array, std::string_view field);

}  // namespace bankml
