#include "bankml/server/server.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "bankml/base/log.hpp"
#include "server/errors.hpp"
#include "server/http_text.hpp"
#include "server/listening_socket.hpp"
#include "server/session.hpp"

namespace bankml {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

constexpr int kMinThreads = 5;
constexpr unsigned kMinWorkers = 2;
// Connections that have not ended by themselves after that are dropped.
constexpr auto kStopPatience = std::chrono::seconds(2);
// After a failed accept, most often for want of file descriptors.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);
// Connections beyond the limit that are told so at the same time, and for how long; more are just closed.
constexpr int kMaxRefusing = 64;
constexpr auto kRefusalTime = std::chrono::seconds(1);

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);

bool is_unix_path(std::string_view host) noexcept {
  return host.ends_with(".sock");
}

int thread_count(int requested) {
  if (requested >= 1) return requested;
  return std::max(kMinThreads, static_cast<int>(std::thread::hardware_concurrency()) - 1);
}

// The sessions that are open.
class SessionList {
 public:
  void add(std::shared_ptr<Session> session) {
    const std::lock_guard lock(mutex_);
    std::erase_if(sessions_, [](const auto& known) { return known.expired(); });
    sessions_.push_back(session);
  }
  template <class Action>
  void for_each(Action&& action) {
    const std::lock_guard lock(mutex_);
    for (const auto& known : sessions_) {
      if (const auto session = known.lock()) action(*session);
    }
  }

 private:
  std::mutex mutex_;
  std::list<std::weak_ptr<Session>> sessions_;
};

// Takes the connections of one listening socket.
class Listener {
 public:
  Listener(asio::io_context& io, Service& service, SessionList& sessions, asio::thread_pool& workers,
           ListeningSocket socket)
      : socket_(std::move(socket)),
        acceptor_(asio::make_strand(io)),
        io_(io),
        service_(service),
        sessions_(sessions),
        workers_(workers) {
    acceptor_.assign(Protocol(socket_.family(), 0), socket_.release());
  }

  void start() { asio::co_spawn(acceptor_.get_executor(), run(), asio::detached); }
  // Any thread.
  void close() {
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
      socket_.remove_path();
    });
  }
  const ListeningSocket& socket() const noexcept { return socket_; }

 private:
  using Protocol = asio::generic::stream_protocol;

  asio::awaitable<void> run() {
    asio::steady_timer pause(acceptor_.get_executor());
    while (acceptor_.is_open()) {
      bool accepted = false;
      try {
        Socket socket(asio::make_strand(io_));
        const auto [error] = co_await acceptor_.async_accept(socket, kToken);
        if (!acceptor_.is_open()) break;
        accepted = !error;
        if (accepted) {
          take(std::move(socket));
        } else {
          log_warning("accepting a connection: {}", error.message());
        }
      } catch (const std::exception& failure) {
        log_warning("accepting a connection: {}", failure.what());
      }
      if (accepted) continue;
      try {
        pause.expires_after(kAcceptPause);
        co_await pause.async_wait(kToken);
      } catch (const std::exception&) {  // no memory for a pause: at once, then
      }
    }
  }

  void take(Socket socket) {
    const std::string address = peer_address(socket.native_handle());
    ConnectionCounter::Ticket ticket = service_.connections().enter(address, service_.policy()->limits);
    error_code ignored;
    if (!ticket) {
      log_warning("too many connections: one of {} is refused", address.empty() ? "a UNIX socket" : address);
      if (refusing_->load() < kMaxRefusing) {
        const auto shared = std::make_shared<Socket>(std::move(socket));
        asio::co_spawn(shared->get_executor(), refuse(shared, refusing_), asio::detached);
      }
      return;
    }
    if (!address.empty()) socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    auto session = make_session(std::move(socket), std::move(ticket), service_, workers_);
    sessions_.add(session);
    session->start();
  }

  // What the client sends meanwhile is read, or it would see a reset instead of the answer.
  static asio::awaitable<void> refuse(std::shared_ptr<Socket> socket, std::shared_ptr<std::atomic<int>> refusing) {
    ++*refusing;
    const auto leave = [](std::atomic<int>* count) { --*count; };
    const std::unique_ptr<std::atomic<int>, decltype(leave)> guard(refusing.get(), leave);  // whatever ends it
    asio::steady_timer deadline(socket->get_executor(), kRefusalTime);
    deadline.async_wait([socket](error_code error) {
      error_code ignored;
      if (!error) socket->close(ignored);
    });
    auto [error, size] = co_await asio::async_write(*socket, asio::buffer(too_many_connections()), kToken);
    socket->shutdown(Socket::shutdown_send, error);
    std::array<char, 4096> unread;
    while (!error) std::tie(error, size) = co_await socket->async_read_some(asio::buffer(unread), kToken);
    deadline.cancel();
  }

  static const std::string& too_many_connections() {
    static const std::string text = [] {
      const Response response = error_response(ErrorKind::busy, "too many connections: try again later");
      return response_head(response, {}, {}) + response.body;
    }();
    return text;
  }

  ListeningSocket socket_;
  // Connections that are being refused; shared, as a refusal may outlive the listener.
  std::shared_ptr<std::atomic<int>> refusing_ = std::make_shared<std::atomic<int>>(0);
  asio::basic_socket_acceptor<Protocol, Strand> acceptor_;
  asio::io_context& io_;
  Service& service_;
  SessionList& sessions_;
  asio::thread_pool& workers_;
};

}  // namespace

struct Server::Impl {
  explicit Impl(ServerOptions options) : service(std::move(options)) {}

  void listen(ListeningSocket socket) {
    listeners.push_back(std::make_unique<Listener>(*io, service, sessions, *workers, std::move(socket)));
  }

  void listen(const std::string& host, bool alone) {
    const ServerOptions& options = service.options();
    listen(is_unix_path(host) ? ListeningSocket::bind_unix(host)
                              : ListeningSocket::bind_tcp(host, options.port, options.reuse_port, alone));
  }

  // What a connection's work throws ends that connection.
  void run() {
    for (bool ran = false; !ran;) {
      try {
        io->run();
        ran = true;
      } catch (const std::exception& error) {
        log_error("a connection's work failed: {}", error.what());
      }
    }
    const std::lock_guard lock(mutex);
    ++ended;
    all_ended.notify_all();
  }

  Service service;
  SessionList sessions;
  std::optional<asio::io_context> io;
  std::optional<asio::thread_pool> workers;  // for large requests
  std::vector<std::unique_ptr<Listener>> listeners;
  std::vector<std::thread> threads;
  std::mutex mutex;
  std::condition_variable all_ended;
  std::size_t ended = 0;  // threads that have left run(), guarded by mutex
};

Server::Server(ServerOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
Server::~Server() {
  stop();
}

void Server::start() {
  const ServerOptions& options = impl_->service.options();
  const auto tcp_hosts = std::ranges::count_if(options.hosts, [](const auto& host) { return !is_unix_path(host); });
  if (options.port == 0 && tcp_hosts > 1) {
    throw Error(ErrorKind::invalid_request,
                "port 0 (any free port) needs a single host: several would get different ports");
  }
  impl_->io.emplace();
  impl_->workers.emplace(std::max(kMinWorkers, std::thread::hardware_concurrency()));
  for (const int descriptor : options.listening_sockets) impl_->listen(ListeningSocket::adopt(descriptor));
  if (options.listening_sockets.empty()) {
    for (const std::string& host : options.hosts) impl_->listen(host, tcp_hosts == 1);
  }
  for (const auto& listener : impl_->listeners) listener->start();
  for (int i = thread_count(options.threads); i > 0; --i) impl_->threads.emplace_back([this] { impl_->run(); });
}

std::vector<std::string> Server::addresses() const {
  std::vector<std::string> addresses;
  for (const auto& listener : impl_->listeners) addresses.push_back(listener->socket().address());
  return addresses;
}

int Server::port() const noexcept {
  const auto found =
      std::ranges::find_if(impl_->listeners, [](const auto& listener) { return listener->socket().port() != 0; });
  return found == impl_->listeners.end() ? 0 : (*found)->socket().port();
}

void Server::set_ready(App app) {
  impl_->service.set_ready(std::move(app));
}

void Server::serve_without_model() {
  impl_->service.serve_without_model();
}

void Server::reload(ServerPolicy policy) {
  impl_->service.reload(std::move(policy));
}

bool Server::drain(std::chrono::milliseconds patience) {
  if (!impl_->io) return true;
  for (const auto& listener : impl_->listeners) listener->close();
  impl_->sessions.for_each([](Session& session) { session.finish(); });
  return impl_->service.activity().wait_until_none(patience);
}

void Server::stop() {
  if (!impl_->io) return;
  for (const auto& listener : impl_->listeners) listener->close();
  const auto all_ended = [this] { return impl_->ended == impl_->threads.size(); };
  {
    // A connection that was accepted while the listeners closed shows up in a later round.
    std::unique_lock lock(impl_->mutex);
    const auto give_up = std::chrono::steady_clock::now() + kStopPatience;
    while (!all_ended() && std::chrono::steady_clock::now() < give_up) {
      impl_->sessions.for_each([](Session& session) { session.shut_down(); });
      impl_->all_ended.wait_for(lock, kAcceptPause, all_ended);
    }
  }
  impl_->io->stop();
  for (std::thread& thread : impl_->threads) thread.join();
  impl_->threads.clear();
  impl_->listeners.clear();
  // Requests that are being handled belong to sessions: these go when the workers have let go of them.
  if (impl_->workers) {
    impl_->workers->stop();
    impl_->workers->join();
    impl_->workers.reset();
  }
  impl_->io.reset();
}

}  // namespace bankml
