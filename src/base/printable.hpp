#pragma once
// Bytes of a file made fit for a log line or an error message.
#include <string>
#include <string_view>

namespace bankml {

// `text` in single quotes; bytes outside printable ASCII as \xNN, and "..." in place of what exceeds some 80 bytes.
std::string printable(std::string_view text);

}  // namespace bankml
