#pragma once
// Text of flags and environment variables to values, as forgiving as llama-server: numbers by the rules of C's strtol
// and strtof, text after a number ignored (docs/cli.md 1). All throw Error(invalid_request) saying what was expected
// and what came.
#include <boost/json/object.hpp>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "bankml/engine/sampling.hpp"

namespace bankml {

// "expected ..., got ...", as an Error(invalid_request).
[[noreturn]] void bad_value(std::string_view expected, std::string_view text);

int to_int(const std::string& text, int least = std::numeric_limits<int>::min(),
           int most = std::numeric_limits<int>::max());
int to_threads(const std::string& text);         // at most 1024; below 1: as many as the machine has
std::uint32_t to_seed(const std::string& text);  // -1 is 0xFFFFFFFF
float to_float(const std::string& text);         // finite
float to_positive(const std::string& text);      // finite and above 0

// 1/on/true/enabled or 0/off/false/disabled: an on/off flag in the environment.
bool to_bool(std::string_view text);

// `text` if it is one of `allowed`.
std::string one_of(const std::string& text, std::initializer_list<std::string_view> allowed);

// on, off or auto in any of their spellings.
enum class Switch { off, on, automatic };
Switch to_switch(const std::string& text);

// Without blanks and line ends at both ends.
std::string_view trimmed(std::string_view text);

// Comma-separated, spaces around items taken off, empty items dropped.
std::vector<std::string> split_list(std::string_view text);
// The same with items that may stand in double quotes ("" is a quote inside them).
std::vector<std::string> split_csv(std::string_view text);

// \n \r \t \' \" \\ and \xHH replaced by what they stand for; other backslashes stay.
std::string unescape(std::string_view text);

// Names of samplers separated by ';'; unknown ones are dropped.
std::vector<SamplerKind> parse_sampler_list(std::string_view text);

boost::json::object to_json_object(const std::string& text);
// `text`, if it is a directory.
std::string to_directory(const std::string& text);

// Contents of a file of at most 64 MiB; throws Error(io).
std::string read_text_file(const std::string& path);

// Appends the keys of a file, one a line; empty lines and those that begin with # are skipped. Throws Error(io).
void add_keys_of_file(const std::string& path, std::vector<std::string>& keys);

}  // namespace bankml
