#include "server/listening_socket.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "bankml/base/error.hpp"

namespace bankml {
namespace {

constexpr int kBacklog = 512;

[[noreturn]] void fail(const std::string& where, const std::string& why) {
  throw Error(ErrorKind::io, fmt::format("can't listen on {}: {}", where, why));
}
[[noreturn]] void fail(const std::string& where) {
  fail(where, std::generic_category().message(errno));
}

void set_option(int descriptor, int level, int option, int value) {
  ::setsockopt(descriptor, level, option, &value, sizeof value);
}

// An IP address as text; "" for another kind.
std::string address_text(const sockaddr_storage& storage) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (storage.ss_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, text.data(), text.size());
  } else if (storage.ss_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, text.data(), text.size());
  }
  return text.data();
}

bool answers(const sockaddr_un& address) {
  const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (probe < 0) return false;
  const bool connected = ::connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  ::close(probe);
  return connected;
}

}  // namespace

ListeningSocket::ListeningSocket(ListeningSocket&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      family_(other.family_),
      port_(other.port_),
      address_(std::move(other.address_)),
      owned_path_(std::exchange(other.owned_path_, {})) {}

ListeningSocket::~ListeningSocket() {
  if (descriptor_ >= 0) ::close(descriptor_);
  remove_path();
}

int ListeningSocket::release() noexcept {
  return std::exchange(descriptor_, -1);
}

void ListeningSocket::remove_path() noexcept {
  if (!owned_path_.empty()) ::unlink(owned_path_.c_str());
  owned_path_.clear();
}

ListeningSocket ListeningSocket::bind_tcp(const std::string& host, int port, bool reuse_port, bool alone) {
  const std::string where = fmt::format("{} port {}", host, port);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); error != 0) {
    fail(where, ::gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> found(list, ::freeaddrinfo);
  ListeningSocket result(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (result.descriptor_ < 0) fail(where);
  set_option(result.descriptor_, SOL_SOCKET, SO_REUSEADDR, 1);
  if (reuse_port) set_option(result.descriptor_, SOL_SOCKET, SO_REUSEPORT, 1);
  if (found->ai_family == AF_INET6) set_option(result.descriptor_, IPPROTO_IPV6, IPV6_V6ONLY, alone ? 0 : 1);
  if (::bind(result.descriptor_, found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(result.descriptor_, kBacklog) != 0) {
    fail(where);
  }
  result.read_address(host);
  return result;
}

ListeningSocket ListeningSocket::bind_unix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) {
    fail(path, fmt::format("the path is longer than {} bytes", sizeof address.sun_path - 1));
  }
  path.copy(address.sun_path, path.size());
  std::error_code ignored;
  if (std::filesystem::is_socket(path, ignored)) {
    if (answers(address)) fail(path, "another process listens there");
    std::filesystem::remove(path, ignored);
  }
  ListeningSocket result(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (result.descriptor_ < 0 ||
      ::bind(result.descriptor_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fail(path);
  }
  result.owned_path_ = path;
  if (::listen(result.descriptor_, kBacklog) != 0) fail(path);
  result.read_address({});
  return result;
}

ListeningSocket ListeningSocket::adopt(int descriptor) {
  ListeningSocket result(descriptor);
  int listening = 0;
  socklen_t size = sizeof listening;
  if (::getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0) {
    fail(fmt::format("the inherited descriptor {}", descriptor), "it is not a listening socket");
  }
  result.read_address({});
  return result;
}

void ListeningSocket::read_address(const std::string& host) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  ::getsockname(descriptor_, reinterpret_cast<sockaddr*>(&storage), &size);
  family_ = storage.ss_family;
  if (family_ == AF_UNIX) {
    address_ = fmt::format("unix:{}", reinterpret_cast<const sockaddr_un&>(storage).sun_path);
    return;
  }
  // The port is at the same place for both kinds of address.
  port_ = ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  const std::string name = host.empty() ? address_text(storage) : host;
  const bool is_v6 = name.find(':') != std::string::npos;
  address_ = is_v6 ? fmt::format("http://[{}]:{}", name, port_) : fmt::format("http://{}:{}", name, port_);
}

std::string peer_address(int descriptor) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getpeername(descriptor, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return {};
  return address_text(storage);
}

}  // namespace bankml
