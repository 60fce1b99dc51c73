#include "bankml/server/server.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <condition_variable>
#include <filesystem>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "bankml/base/log.hpp"
#include "server/session.hpp"

namespace bankml {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using asio::local::stream_protocol;
using boost::system::error_code;
using ReusePort = asio::detail::socket_option::boolean<SOL_SOCKET, SO_REUSEPORT>;

constexpr int kBacklog = 512;
constexpr int kMinThreads = 5;
constexpr unsigned kMinWorkers = 2;
// Connections that have not ended by themselves after that are dropped.
constexpr auto kStopPatience = std::chrono::seconds(2);
// After a failed accept, most often for want of file descriptors.
constexpr auto kAcceptPause = std::chrono::milliseconds(100);

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
  void shut_down() {
    const std::lock_guard lock(mutex_);
    for (const auto& known : sessions_) {
      if (const auto session = known.lock()) session->shut_down();
    }
  }

 private:
  std::mutex mutex_;
  std::list<std::weak_ptr<Session>> sessions_;
};

struct Listener {
  virtual ~Listener() = default;
  virtual void start() = 0;
  virtual void close() = 0;  // any thread
  virtual std::string address() const = 0;
  virtual int port() const { return 0; }
};

template <class Protocol>
class ListenerOf : public Listener {
 public:
  ListenerOf(asio::io_context& io, Service& service, SessionList& sessions, asio::thread_pool& workers)
      : acceptor_(asio::make_strand(io)), io_(io), service_(service), sessions_(sessions), workers_(workers) {}

  void start() override { asio::co_spawn(acceptor_.get_executor(), run(), asio::detached); }
  void close() override {
    asio::post(acceptor_.get_executor(), [this] {
      error_code ignored;
      acceptor_.close(ignored);
    });
  }

 protected:
  using Acceptor = asio::basic_socket_acceptor<Protocol, Strand>;
  Acceptor& acceptor() noexcept { return acceptor_; }
  const Acceptor& acceptor() const noexcept { return acceptor_; }

 private:
  asio::awaitable<void> run() {
    asio::steady_timer pause(acceptor_.get_executor());
    while (acceptor_.is_open()) {
      Socket socket(asio::make_strand(io_));
      const auto [error] = co_await acceptor_.async_accept(socket, kToken);
      if (!acceptor_.is_open()) break;
      if (error) {
        log_warning("accepting a connection: {}", error.message());
        pause.expires_after(kAcceptPause);
        co_await pause.async_wait(kToken);
        continue;
      }
      if constexpr (std::is_same_v<Protocol, tcp>) {
        error_code ignored;
        socket.set_option(tcp::no_delay(true), ignored);
      }
      auto session = make_session(std::move(socket), service_, workers_);
      sessions_.add(session);
      session->start();
    }
  }

  Acceptor acceptor_;
  asio::io_context& io_;
  Service& service_;
  SessionList& sessions_;
  asio::thread_pool& workers_;
};

class TcpListener final : public ListenerOf<tcp> {
 public:
  // `alone`: an IPv6 wildcard then takes IPv4 connections, too.
  TcpListener(asio::io_context& io, Service& service, SessionList& sessions, asio::thread_pool& workers,
              const std::string& host, bool alone)
      : ListenerOf(io, service, sessions, workers), host_(host) {
    tcp::resolver resolver(io);
    const ServerOptions& options = service.options();
    const tcp::endpoint endpoint =
        *resolver.resolve(host, std::to_string(options.port), tcp::resolver::passive).begin();
    acceptor().open(endpoint.protocol());
    acceptor().set_option(tcp::acceptor::reuse_address(true));
    if (options.reuse_port) acceptor().set_option(ReusePort(true));
    if (endpoint.protocol() == tcp::v6()) acceptor().set_option(asio::ip::v6_only(!alone));
    acceptor().bind(endpoint);
    acceptor().listen(kBacklog);
    port_ = acceptor().local_endpoint().port();
  }
  std::string address() const override {
    const bool is_v6 = host_.find(':') != std::string::npos;
    return is_v6 ? fmt::format("http://[{}]:{}", host_, port_) : fmt::format("http://{}:{}", host_, port_);
  }
  int port() const override { return port_; }

 private:
  std::string host_;
  int port_ = 0;
};

class UnixListener final : public ListenerOf<stream_protocol> {
 public:
  UnixListener(asio::io_context& io, Service& service, SessionList& sessions, asio::thread_pool& workers,
               const std::string& path)
      : ListenerOf(io, service, sessions, workers), path_(path) {
    // A socket that a former process left behind can't be bound again; anything else at that path is not ours to
    // remove.
    if (std::filesystem::is_socket(path)) std::filesystem::remove(path);
    const stream_protocol::endpoint endpoint(path);
    acceptor().open(endpoint.protocol());
    acceptor().bind(endpoint);
    acceptor().listen(kBacklog);
  }
  ~UnixListener() override {
    std::error_code ignored;
    std::filesystem::remove(path_, ignored);
  }
  std::string address() const override { return "unix:" + path_; }

 private:
  std::string path_;
};

}  // namespace

struct Server::Impl {
  explicit Impl(ServerOptions options) : service(std::move(options)) {}

  void listen(const std::string& host, bool alone) {
    try {
      if (is_unix_path(host)) {
        listeners.push_back(std::make_unique<UnixListener>(*io, service, sessions, *workers, host));
      } else {
        listeners.push_back(std::make_unique<TcpListener>(*io, service, sessions, *workers, host, alone));
      }
    } catch (const boost::system::system_error& error) {
      throw Error(ErrorKind::io, fmt::format("can't listen on {}{}: {}", host,
                                             is_unix_path(host) ? "" : fmt::format(" port {}", service.options().port),
                                             error.code().message()));
    }
  }

  void run() {
    io->run();
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
  for (const std::string& host : options.hosts) impl_->listen(host, tcp_hosts == 1);
  for (const auto& listener : impl_->listeners) listener->start();
  for (int i = thread_count(options.threads); i > 0; --i) impl_->threads.emplace_back([this] { impl_->run(); });
}

std::vector<std::string> Server::addresses() const {
  std::vector<std::string> addresses;
  for (const auto& listener : impl_->listeners) addresses.push_back(listener->address());
  return addresses;
}

int Server::port() const noexcept {
  const auto found = std::ranges::find_if(impl_->listeners, [](const auto& listener) { return listener->port() != 0; });
  return found == impl_->listeners.end() ? 0 : (*found)->port();
}

void Server::set_ready(App app) {
  impl_->service.set_ready(std::move(app));
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
      impl_->sessions.shut_down();
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
