#include "main/service_manager.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdlib>
#include <ctime>

namespace bankml {
namespace {

constexpr int kFirstSocket = 3;  // SD_LISTEN_FDS_START

// The value of a variable, which is removed.
std::string take_variable(const char* name) {
  const char* value = std::getenv(name);
  std::string text = value != nullptr ? value : "";
  ::unsetenv(name);
  return text;
}

// Variables that are inherited by accident name another process.
bool is_for_us(const std::string& pid) {
  return pid.empty() || std::atoll(pid.c_str()) == ::getpid();
}

}  // namespace

ServiceManager::ServiceManager() : address_(take_variable("NOTIFY_SOCKET")) {
  const std::string listen_pid = take_variable("LISTEN_PID"), listen_count = take_variable("LISTEN_FDS");
  take_variable("LISTEN_FDNAMES");
  if (!listen_pid.empty() && is_for_us(listen_pid)) {
    for (int i = 0; i < std::atoi(listen_count.c_str()); ++i) {
      sockets_.push_back(kFirstSocket + i);
      ::fcntl(sockets_.back(), F_SETFD, FD_CLOEXEC);
      ::fcntl(sockets_.back(), F_SETFL, ::fcntl(sockets_.back(), F_GETFL) | O_NONBLOCK);
    }
  }
  const std::string watchdog_pid = take_variable("WATCHDOG_PID"), watchdog_time = take_variable("WATCHDOG_USEC");
  if (is_for_us(watchdog_pid)) watchdog_ = std::chrono::microseconds(std::atoll(watchdog_time.c_str()));
  if (address_.empty() || address_.size() >= sizeof(sockaddr_un::sun_path)) return;
  if (address_.front() == '@') address_.front() = '\0';
  socket_ = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
}

ServiceManager::~ServiceManager() {
  if (socket_ >= 0) ::close(socket_);
}

void ServiceManager::status(std::string_view text) const {
  send(fmt::format("STATUS={}", text), MSG_DONTWAIT);
}
void ServiceManager::ready(std::string_view text) const {
  send(fmt::format("READY=1\nSTATUS={}", text));
}
void ServiceManager::reloading() const {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  send(fmt::format("RELOADING=1\nMONOTONIC_USEC={}",
                   static_cast<long long>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1000));
}
void ServiceManager::stopping(std::string_view text) const {
  send(fmt::format("STOPPING=1\nSTATUS={}", text), MSG_DONTWAIT);
}

std::function<void()> ServiceManager::watchdog() const {
  using Clock = std::chrono::steady_clock;
  if (socket_ < 0 || watchdog_.count() <= 0) return {};
  return [this, last = Clock::time_point()]() mutable {
    // Half of the time is what the manager advises; a quarter leaves room for a slow step.
    constexpr int kShare = 4;
    const auto now = Clock::now();
    if (now - last < watchdog_ / kShare) return;
    last = now;
    send("WATCHDOG=1", MSG_DONTWAIT);
  };
}

// A manager that does not listen is none of our business.
void ServiceManager::send(const std::string& message, int flags) const {
  if (socket_ < 0) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  address_.copy(address.sun_path, address_.size());
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  ::sendto(socket_, message.data(), message.size(), MSG_NOSIGNAL | flags, reinterpret_cast<const sockaddr*>(&address),
           size);
}

}  // namespace bankml
