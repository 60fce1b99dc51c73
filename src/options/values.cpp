#include "options/values.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <boost/system/error_code.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "bankml/base/error.hpp"
#include "base/printable.hpp"

namespace bankml {
namespace {

constexpr std::size_t kMaxTextFile = std::size_t{64} << 20;
constexpr int kMaxThreads = 1024;  // more than the largest machines have

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

}  // namespace

void bad_value(std::string_view expected, std::string_view text) {
  throw Error(ErrorKind::invalid_request, fmt::format("expected {}, got {}", expected, printable(text)));
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

int to_int(const std::string& text, int least, int most) {
  using Limits = std::numeric_limits<int>;
  long long value = 0;
  try {
    value = std::stoll(text);
  } catch (const std::out_of_range&) {
    value =
        trimmed(text).starts_with('-') ? std::numeric_limits<long long>::min() : std::numeric_limits<long long>::max();
  } catch (const std::invalid_argument&) {
    bad_value("an integer", text);
  }
  if (value >= least && value <= most) return static_cast<int>(value);
  if (most == Limits::max() && value < least && least != Limits::min()) {
    bad_value(fmt::format("an integer of at least {}", least), text);
  }
  if (least == Limits::min() && most != Limits::max()) bad_value(fmt::format("an integer of at most {}", most), text);
  bad_value(fmt::format("an integer from {} to {}", least, most), text);
}

int to_threads(const std::string& text) {
  return to_int(text, std::numeric_limits<int>::min(), kMaxThreads);
}

std::uint32_t to_seed(const std::string& text) {
  try {
    return static_cast<std::uint32_t>(std::stoul(text));
  } catch (const std::logic_error&) {
    bad_value("an integer", text);
  }
}

float to_float(const std::string& text) {
  float value = 0;
  try {
    value = std::stof(text);
  } catch (const std::logic_error&) {
    bad_value("a number", text);
  }
  if (!std::isfinite(value)) bad_value("a finite number", text);
  return value;
}

float to_positive(const std::string& text) {
  const float value = to_float(text);
  if (!(value > 0.0f)) bad_value("a number above 0", text);
  return value;
}

bool to_bool(std::string_view text) {
  for (const std::string_view yes : {"1", "on", "true", "enabled"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"0", "off", "false", "disabled"}) {
    if (text == no) return false;
  }
  bad_value("on or off", text);
}

std::string one_of(const std::string& text, std::initializer_list<std::string_view> allowed) {
  if (std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
    bad_value(fmt::format("one of {}", fmt::join(allowed, ", ")), text);
  }
  return text;
}

boost::json::object to_json_object(const std::string& text) {
  boost::system::error_code error;
  boost::json::value value = boost::json::parse(text, error);
  if (error || !value.is_object()) bad_value("a JSON object", text);
  return std::move(value.get_object());
}

Switch to_switch(const std::string& text) {
  if (text == "auto" || text == "-1") return Switch::automatic;
  try {
    return to_bool(text) ? Switch::on : Switch::off;
  } catch (const Error&) {
    bad_value("on, off or auto", text);
  }
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  while (true) {
    const std::size_t comma = text.find(',');
    if (const std::string_view item = trimmed(text.substr(0, comma)); !item.empty()) items.emplace_back(item);
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

std::vector<std::string> split_csv(std::string_view text) {
  std::vector<std::string> items;
  std::string item;
  bool quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      const bool doubled = quoted && i + 1 < text.size() && text[i + 1] == '"';
      if (doubled)
        item += text[i++];
      else
        quoted = !quoted;
    } else if (text[i] == ',' && !quoted) {
      if (!item.empty()) items.push_back(std::move(item));
      item.clear();
    } else {
      item += text[i];
    }
  }
  if (!item.empty()) items.push_back(std::move(item));
  return items;
}

std::string unescape(std::string_view text) {
  constexpr std::string_view kNames = "nrt'\"\\";
  constexpr std::string_view kMeanings = "\n\r\t'\"\\";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
    } else if (const std::size_t known = kNames.find(text[i + 1]); known != std::string_view::npos) {
      out += kMeanings[known];
      ++i;
    } else if (text[i + 1] == 'x' && i + 3 < text.size() && hex_digit(text[i + 2]) >= 0 &&
               hex_digit(text[i + 3]) >= 0) {
      out += static_cast<char>(hex_digit(text[i + 2]) * 16 + hex_digit(text[i + 3]));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

std::vector<SamplerKind> parse_sampler_list(std::string_view text) {
  std::vector<std::string> names;
  std::istringstream in{std::string(text)};
  for (std::string name; std::getline(in, name, ';');) names.push_back(name);
  return parse_sampler_names(names);
}

std::string to_directory(const std::string& text) {
  if (!std::filesystem::is_directory(text)) bad_value("an existing directory", text);
  return text;
}

std::string read_text_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in || std::filesystem::is_directory(path))
    throw Error(ErrorKind::io, fmt::format("can't read the file '{}'", path));
  std::string text;
  std::array<char, 1 << 16> part;
  do {
    in.read(part.data(), part.size());
    text.append(part.data(), static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMaxTextFile) {
      throw Error(ErrorKind::io, fmt::format("the file '{}' has more than {} bytes", path, kMaxTextFile));
    }
  } while (in);
  return text;
}

void add_keys_of_file(const std::string& path, std::vector<std::string>& keys) {
  const std::string text = read_text_file(path);
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = std::min(text.find('\n', start), text.size());
    std::string line = text.substr(start, end - start);
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty() && line.front() != '#') keys.push_back(std::move(line));
    start = end + 1;
  }
}

}  // namespace bankml
