#pragma once
// A blocking HTTP client that sends exactly what a test says.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

namespace bankml::test {

struct HttpAnswer {
  int status = 0;    // 0: the connection ended before an answer
  std::string head;  // with the status line
  std::string body;  // of a chunked answer: the chunks joined
  bool complete = false;
};

class HttpClient {
 public:
  explicit HttpClient(int port) : socket_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connect(&address, sizeof address);
  }
  explicit HttpClient(const std::string& path) : socket_(::socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    path.copy(address.sun_path, sizeof address.sun_path - 1);
    connect(&address, sizeof address);
  }
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;
  ~HttpClient() { close(); }

  void close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
  }

  // Nothing more will be sent.
  void end_input() { ::shutdown(socket_, SHUT_WR); }

  // What can't be sent because the other side has closed is dropped.
  void send(std::string_view text) {
    while (!text.empty()) {
      const ssize_t n = ::send(socket_, text.data(), text.size(), MSG_NOSIGNAL);
      if (n <= 0) return;
      text.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void send_request(std::string_view method, std::string_view target, std::string_view body = {},
                    std::string_view headers = {}) {
    std::string text;
    ((((text += method) += ' ') += target) += " HTTP/1.1\r\nHost: test\r\n") += headers;
    if (method == "POST") text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    (text += "\r\n") += body;
    send(text);
  }

  // Reads one answer. `to_head`: its body is not expected.
  HttpAnswer read_answer(bool to_head = false) {
    HttpAnswer answer;
    if (!read_until("\r\n\r\n")) return answer;
    const std::size_t end = received_.find("\r\n\r\n") + 4;
    answer.head = take(end);
    answer.status = std::atoi(answer.head.c_str() + std::strlen("HTTP/1.1 "));
    if (answer.status == 100) return read_answer();
    if (to_head) {
      answer.complete = true;
    } else if (answer.head.find("Transfer-Encoding: chunked") != std::string::npos) {
      answer.complete = read_chunks(answer.body);
    } else if (const std::size_t at = answer.head.find("Content-Length: "); at != std::string::npos) {
      const auto size =
          static_cast<std::size_t>(std::atoll(answer.head.c_str() + at + std::strlen("Content-Length: ")));
      answer.complete = read_at_least(size);
      answer.body = take(std::min(size, received_.size()));
    } else {
      while (read_more()) {
      }
      answer.body = take(received_.size());
      answer.complete = true;
    }
    return answer;
  }

  // Waits until the text has come.
  bool read_until(std::string_view text) {
    while (received_.find(text) == std::string::npos) {
      if (!read_more()) return false;
    }
    return true;
  }
  // Whether the other side closes the connection, whatever comes before that.
  bool is_closed() {
    while (read_more()) {
    }
    return ended_;
  }

 private:
  void connect(const void* address, socklen_t size) {
    const timeval patience{30, 0};
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    EXPECT_EQ(::connect(socket_, static_cast<const sockaddr*>(address), size), 0) << std::strerror(errno);
  }
  bool read_more() {
    char buffer[16384];
    const ssize_t n = ::recv(socket_, buffer, sizeof buffer, 0);
    ended_ = n == 0 || (n < 0 && errno == ECONNRESET);
    if (n <= 0) return false;
    received_.append(buffer, static_cast<std::size_t>(n));
    return true;
  }
  bool read_at_least(std::size_t size) {
    while (received_.size() < size) {
      if (!read_more()) return false;
    }
    return true;
  }
  bool read_chunks(std::string& body) {
    for (;;) {
      if (!read_until("\r\n")) return false;
      const auto size = static_cast<std::size_t>(std::strtoull(received_.c_str(), nullptr, 16));
      take(received_.find("\r\n") + 2);
      if (!read_at_least(size + 2)) return false;
      body += take(size);
      take(2);
      if (size == 0) return true;
    }
  }
  std::string take(std::size_t size) {
    std::string text = received_.substr(0, size);
    received_.erase(0, size);
    return text;
  }

  int socket_;
  std::string received_;
  bool ended_ = false;
};

}  // namespace bankml::test
