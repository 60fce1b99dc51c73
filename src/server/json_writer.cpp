#include "server/json_writer.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>

#include "bankml/base/utf8.hpp"

namespace bankml {
namespace {

// Plain notation for decimal exponents in (kSmallest, kLargest], exponent notation elsewhere.
constexpr int kSmallestPoint = -4, kLargestPoint = 15;

template <class Integer>
void append_integer(std::string& out, Integer value) {
  std::array<char, 24> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value).ptr;
  out.append(buffer.data(), end);
}

void append_valid_string(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  std::size_t plain = 0;  // start of what has not been copied yet
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    out.append(text, plain, i - plain);
    plain = i + 1;
    out += '\\';
    switch (byte) {
      case '"':
      case '\\':
        out += static_cast<char>(byte);
        break;
      case '\b':
        out += 'b';
        break;
      case '\f':
        out += 'f';
        break;
      case '\n':
        out += 'n';
        break;
      case '\r':
        out += 'r';
        break;
      case '\t':
        out += 't';
        break;
      default:
        out += "u00";
        out += kHex[byte >> 4];
        out += kHex[byte & 15];
    }
  }
  out.append(text, plain, text.size() - plain);
  out += '"';
}

}  // namespace

void append_json_number(std::string& out, double number) {
  if (!std::isfinite(number)) {
    out += "null";
    return;
  }
  std::array<char, 32> buffer;
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(number), std::chars_format::scientific).ptr;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));
  const std::size_t e = text.find('e');
  std::string digits(text.substr(0, 1));
  if (e > 2) digits += text.substr(2, e - 2);
  int exponent_of_first = 0;
  std::from_chars(text.data() + e + (text[e + 1] == '+' ? 2 : 1), end, exponent_of_first);
  const int point = exponent_of_first + 1;  // digits before the decimal point
  const int count = static_cast<int>(digits.size());

  if (std::signbit(number)) out += '-';
  if (point > kLargestPoint || point <= kSmallestPoint) {
    out += digits[0];
    if (count > 1) (out += '.').append(digits, 1);
    const int exponent = point - 1;
    out += exponent < 0 ? "e-" : "e+";
    if (std::abs(exponent) < 10) out += '0';
    append_integer(out, std::abs(exponent));
  } else if (point <= 0) {
    out.append("0.").append(static_cast<std::size_t>(-point), '0') += digits;
  } else if (point >= count) {
    out.append(digits).append(static_cast<std::size_t>(point - count), '0') += ".0";
  } else {
    const auto whole = static_cast<std::size_t>(point);
    (out.append(digits, 0, whole) += '.').append(digits, whole);
  }
}

void append_json_string(std::string& out, std::string_view text) {
  if (is_valid_utf8(text)) {
    append_valid_string(out, text);
  } else {
    append_valid_string(out, replace_invalid_utf8(text));
  }
}

void append_json(std::string& out, const boost::json::value& value) {
  switch (value.kind()) {
    case boost::json::kind::null:
      out += "null";
      break;
    case boost::json::kind::bool_:
      out += value.get_bool() ? "true" : "false";
      break;
    case boost::json::kind::int64:
      append_integer(out, value.get_int64());
      break;
    case boost::json::kind::uint64:
      append_integer(out, value.get_uint64());
      break;
    case boost::json::kind::double_:
      append_json_number(out, value.get_double());
      break;
    case boost::json::kind::string:
      append_json_string(out, value.get_string());
      break;
    case boost::json::kind::array: {
      out += '[';
      bool first = true;
      for (const auto& element : value.get_array()) {
        if (!first) out += ',';
        first = false;
        append_json(out, element);
      }
      out += ']';
      break;
    }
    case boost::json::kind::object: {
      out += '{';
      bool first = true;
      for (const auto& member : value.get_object()) {
        if (!first) out += ',';
        first = false;
        append_json_string(out, member.key());
        out += ':';
        append_json(out, member.value());
      }
      out += '}';
      break;
    }
  }
}

std::string to_json(const boost::json::value& value) {
  std::string out;
  append_json(out, value);
  return out;
}

}  // namespace bankml
