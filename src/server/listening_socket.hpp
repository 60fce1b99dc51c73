#pragma once
// Sockets that wait for clients: bound here, or inherited from the process that started this one.
#include <string>

namespace bankml {

// Closes the socket and removes the path of a UNIX socket that was bound here.
class ListeningSocket {
 public:
  // `alone`: an IPv6 wildcard then takes IPv4 connections, too. Throws Error(io), naming the address.
  static ListeningSocket bind_tcp(const std::string& host, int port, bool reuse_port, bool alone);
  // A socket that a former process left behind at `path` is replaced; one that still answers is not.
  static ListeningSocket bind_unix(const std::string& path);
  // Takes over a descriptor that is listening already. Throws Error(io) if it is none.
  static ListeningSocket adopt(int descriptor);

  ListeningSocket(ListeningSocket&& other) noexcept;
  ListeningSocket& operator=(ListeningSocket&&) = delete;
  ~ListeningSocket();

  // Hands the descriptor to the caller; it is no longer closed here.
  int release() noexcept;
  // From then on a new socket can be bound to the path.
  void remove_path() noexcept;

  int family() const noexcept { return family_; }
  const std::string& address() const noexcept { return address_; }  // "http://[::1]:8080", "unix:/path"
  int port() const noexcept { return port_; }                       // 0 of a UNIX socket

 private:
  explicit ListeningSocket(int descriptor) noexcept : descriptor_(descriptor) {}
  // Fills family, port and address; `host`: what the user calls it, "" for the address itself.
  void read_address(const std::string& host);

  int descriptor_ = -1, family_ = 0, port_ = 0;
  std::string address_, owned_path_;
};

// "127.0.0.1", without the port; "" for a UNIX socket.
std::string peer_address(int descriptor);

}  // namespace bankml
