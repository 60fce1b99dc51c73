#pragma once
// Log lines, to stderr unless configured otherwise, one per call, safe from any thread, in fmt's syntax:
// log_info("loaded {} tensors", n). Nothing here fails: a line that can't be made or written (no memory, a full disk)
// is lost. Control characters and bytes that are no UTF-8 come out as \xHH: whatever a client sends, a call is one
// line.
#include <fmt/core.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace bankml {

enum class LogLevel { error = 1, warning = 2, info = 3, trace = 4, debug = 5 };

// Lines above this level are dropped before they are formatted. Default: info.
void set_log_level(LogLevel level) noexcept;
LogLevel log_level() noexcept;
inline bool log_enabled(LogLevel level) noexcept {
  return level <= log_level();
}

struct LogOptions {
  int verbosity = 3;                // 0 nothing, 1 error, 2 warning, 3 info, 4 trace, 5 and above debug
  bool disabled = false;            // nothing at all
  std::string file = {};            // lines go there as well; "": nowhere else
  std::optional<bool> colors = {};  // unset: where stderr is a terminal
  bool level = true, time = true;   // in front of each line
  // One JSON object a line, on stdout instead of stderr; what is no UTF-8 becomes U+FFFD.
  bool json_lines = false;
};
// Before other threads log. Throws Error(io) if the file can't be opened.
void configure_log(const LogOptions& options);

// Writes one line, whatever the level.
void write_log(LogLevel level, std::string_view line) noexcept;

template <class... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... args) noexcept {
  if (!log_enabled(level)) return;
  try {
    write_log(level, fmt::format(format, std::forward<Args>(args)...));
  } catch (...) {
  }
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::error, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_warning(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::warning, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::info, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_trace(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::trace, format, std::forward<Args>(args)...);
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... args) {
  log_at(LogLevel::debug, format, std::forward<Args>(args)...);
}

}  // namespace bankml
