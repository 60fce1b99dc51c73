#include "bankml/base/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <memory>
#include <vector>

#include "bankml/base/error.hpp"
#include "bankml/base/utf8.hpp"

namespace bankml {
namespace {

constexpr std::string_view kName = "bankmld";
constexpr std::string_view kTime = "%Y-%m-%d %H:%M:%S.%e ";

// C0, DEL and C1.
bool is_control(char32_t code) noexcept {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F);
}

std::atomic<LogLevel> current_level{LogLevel::info};
std::atomic<bool> json_lines{false};

spdlog::level::level_enum spdlog_level(LogLevel level) noexcept {
  switch (level) {
    case LogLevel::error:
      return spdlog::level::err;
    case LogLevel::warning:
      return spdlog::level::warn;
    case LogLevel::info:
      return spdlog::level::info;
    case LogLevel::trace:
      return spdlog::level::trace;
    case LogLevel::debug:
      return spdlog::level::debug;
  }
  return spdlog::level::info;
}

std::string pattern(const LogOptions& options) {
  if (options.json_lines) return R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l","message":"%v"})";
  std::string result;
  if (options.time) result += kTime;
  if (options.level) result += "%^%l%$ ";
  return result + "%v";
}

std::unique_ptr<spdlog::logger> make_logger(const LogOptions& options) {
  using spdlog::color_mode;
  const color_mode colors = !options.colors   ? color_mode::automatic
                            : *options.colors ? color_mode::always
                                              : color_mode::never;
  std::vector<spdlog::sink_ptr> sinks;
  if (options.json_lines) {
    sinks.push_back(std::make_shared<spdlog::sinks::stdout_color_sink_mt>(color_mode::never));
  } else {
    sinks.push_back(std::make_shared<spdlog::sinks::stderr_color_sink_mt>(colors));
  }
  if (!options.file.empty()) {
    try {
      // The library would make missing folders, and so hide a path that is mistyped.
      const std::filesystem::path folder = std::filesystem::path(options.file).parent_path();
      if (!folder.empty() && !std::filesystem::is_directory(folder)) {
        throw Error(ErrorKind::io, fmt::format("can't write the log file '{}': there is no folder '{}'", options.file,
                                               folder.string()));
      }
      sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file));
    } catch (const spdlog::spdlog_ex& error) {
      throw Error(ErrorKind::io, fmt::format("can't write the log file '{}': {}", options.file, error.what()));
    }
  }
  if (options.disabled) sinks.clear();
  auto made = std::make_unique<spdlog::logger>(std::string(kName), sinks.begin(), sinks.end());
  made->set_pattern(pattern(options));
  made->set_level(spdlog::level::trace);  // dropping by level is log_at()'s
  made->flush_on(spdlog::level::trace);   // a log that lags behind is of no use when a process has died
  return made;
}

// Never destroyed: threads and destructors of other statics may still log while the process exits.
spdlog::logger*& logger() {
  static spdlog::logger* instance = make_logger({}).release();
  return instance;
}

// `text` as one line: what names and texts of clients may bring, line ends and terminal sequences, is spelled out.
std::string printable_line(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    const std::string_view bytes = text.substr(pos, c.length);
    pos += c.length;
    if (c.valid && !is_control(c.code)) {
      out += bytes;
      continue;
    }
    for (const char byte : bytes) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", static_cast<unsigned char>(byte));
    }
  }
  return out;
}

// `text` as the inside of a JSON string, which has to be UTF-8 (RFC 8259, section 8.1).
std::string json_escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    if (c.code == '"' || c.code == '\\') {
      out += '\\';
      out += text[pos];
    } else if (is_control(c.code)) {
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c.code));
    } else {
      append_utf8(out, c.code);
    }
    pos += c.length;
  }
  return out;
}

}  // namespace

void set_log_level(LogLevel level) noexcept {
  current_level.store(level, std::memory_order_relaxed);
}

LogLevel log_level() noexcept {
  return current_level.load(std::memory_order_relaxed);
}

void configure_log(const LogOptions& options) {
  std::unique_ptr<spdlog::logger> made = make_logger(options);
  delete logger();
  logger() = made.release();
  json_lines.store(options.json_lines, std::memory_order_relaxed);
  set_log_level(static_cast<LogLevel>(std::clamp(options.verbosity, 0, static_cast<int>(LogLevel::debug))));
}

void write_log(LogLevel level, std::string_view line) noexcept {
  try {
    const std::string text = json_lines.load(std::memory_order_relaxed) ? json_escaped(line) : printable_line(line);
    logger()->log(spdlog_level(level), spdlog::string_view_t(text.data(), text.size()));
  } catch (...) {
  }
}

}  // namespace bankml
