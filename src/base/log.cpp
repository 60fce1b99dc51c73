#include "bankml/base/log.hpp"

#include <spdlog/logger.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <atomic>
#include <memory>

namespace bankml {
namespace {

std::atomic<LogLevel> current_level{LogLevel::info};

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

// Never destroyed: threads and destructors of other statics may still log while the process exits.
spdlog::logger& logger() {
  static spdlog::logger* const instance = [] {
    auto* made = new spdlog::logger("bankmld", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
    made->set_level(spdlog::level::trace);  // dropping by level is log_at()'s
    return made;
  }();
  return *instance;
}

}  // namespace

void set_log_level(LogLevel level) noexcept {
  current_level.store(level, std::memory_order_relaxed);
}

LogLevel log_level() noexcept {
  return current_level.load(std::memory_order_relaxed);
}

void write_log(LogLevel level, std::string_view line) {
  logger().log(spdlog_level(level), spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace bankml
