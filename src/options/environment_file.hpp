#pragma once
// Files of lines NAME=VALUE, as systemd's EnvironmentFile= has them.
#include <map>
#include <string>
#include <string_view>

namespace bankml {

// Blank lines and lines that begin with # or ; are skipped, and quotes around a value are taken off. Throws
// Error(invalid_request), naming the line, for any other line without a name.
std::map<std::string, std::string, std::less<>> parse_environment_file(std::string_view text);

}  // namespace bankml
