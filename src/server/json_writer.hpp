#pragma once
// JSON text as llama-server prints it (docs/http-api.md 1): compact, keys in insertion order, doubles in the shortest
// form that reads back the same, infinities and NaN as null, bad UTF-8 replaced by U+FFFD.
#include <boost/json/value.hpp>
#include <string>
#include <string_view>

namespace bankml {

std::string to_json(const boost::json::value& value);
void append_json(std::string& out, const boost::json::value& value);

void append_json_string(std::string& out, std::string_view text);
// "0.8", "1.0", "1e-05", "null".
void append_json_number(std::string& out, double number);

}  // namespace bankml
