#pragma once
// What a service manager and its daemon tell each other: sd_notify(3), sd_listen_fds(3), sd_watchdog_enabled(3). Their
// protocols are a datagram of text and four environment variables, and promised to stay, so no library is needed.
#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace bankml {

// Does nothing where no service manager asked for it. Methods may be called from any thread.
class ServiceManager {
 public:
  // Reads the environment and clears these variables, so that no child process takes them for its own.
  ServiceManager();
  ~ServiceManager();
  ServiceManager(const ServiceManager&) = delete;
  ServiceManager& operator=(const ServiceManager&) = delete;

  // Whether one has started this process and waits to hear from it.
  bool present() const noexcept { return socket_ >= 0; }

  // Listening sockets that the manager has passed, in its order.
  const std::vector<int>& sockets() const noexcept { return sockets_; }

  void status(std::string_view text) const;
  void ready(std::string_view text) const;
  void reloading() const;
  void stopping(std::string_view text) const;

  // To be called by the thread that does the work, often; the manager hears of it often enough. Empty where no watchdog
  // is on. Not after this object has gone.
  std::function<void()> watchdog() const;

 private:
  // `flags` of sendto(2): where the manager does not read, what is repeated or only shown is lost rather than waited
  // for, since that would hold up the work.
  void send(const std::string& message, int flags = 0) const;

  int socket_ = -1;
  std::string address_;  // of the manager, with the leading zero of an abstract one
  std::vector<int> sockets_;
  std::chrono::microseconds watchdog_{0};  // 0: off
};

}  // namespace bankml
