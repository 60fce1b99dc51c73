#include "server/session.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "bankml/base/log.hpp"
#include "server/errors.hpp"
#include "server/http_text.hpp"

namespace bankml {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using std::chrono::steady_clock;

// Others are refused before they are routed.
constexpr std::array kMethods = {http::verb::get,   http::verb::head,    http::verb::post,   http::verb::put,
                                 http::verb::patch, http::verb::delete_, http::verb::options};
constexpr std::uint64_t kMaxBody = std::uint64_t{100} << 20;
constexpr std::size_t kLargeBody = 64 << 10;
constexpr std::size_t kMaxTarget = 32768, kMaxHeaderLine = 8192, kMaxHeaders = 100;
constexpr std::size_t kMaxHead = kMaxTarget + kMaxHeaders * kMaxHeaderLine;
// Read ahead while an answer is being made, to notice a client that leaves; after that much the next request has to
// wait.
constexpr std::size_t kReadAhead = 64 << 10, kReadStep = 4096;
constexpr auto kIdleTimeout = std::chrono::seconds(kKeepAliveSeconds);
// A client that is still sending when it is refused must get the chance to read why.
constexpr auto kLingerTime = std::chrono::seconds(2);

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);

class HttpSession final : public Session, public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(Socket socket, Service& service, asio::thread_pool& workers)
      : socket_(std::move(socket)),
        deadline_(socket_.get_executor()),
        signal_(socket_.get_executor()),
        buffer_(kMaxHead + kReadAhead),
        service_(service),
        workers_(workers) {}

  void start() override {
    // The coroutine owns the session: a parameter lives in its frame, a capture would not.
    const auto serve = [](std::shared_ptr<HttpSession> self) -> asio::awaitable<void> { co_await self->run(); };
    asio::co_spawn(socket_.get_executor(), serve(shared_from_this()), asio::detached);
  }

  void shut_down() override {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      self->stopping_ = true;
      self->close();
      self->signal_.cancel();
    });
  }

 private:
  using Parser = http::request_parser<http::string_body>;

  struct Incoming {
    Request request;
    bool keep_alive = false, chunked = true;  // chunked: whether the client knows chunked answers
  };

  asio::awaitable<void> run() {
    for (int served = 1; !stopping_; ++served) {
      std::optional<Incoming> incoming = co_await read_request();
      if (!incoming) break;
      bool keep = incoming->keep_alive && served < kMaxRequests;
      Reply reply = co_await handle(incoming->request);
      if (auto* response = std::get_if<Response>(&reply)) {
        keep = co_await write_response(std::move(*response), *incoming, keep);
      } else {
        keep = co_await write_pending(*std::get<std::unique_ptr<PendingReply>>(reply), *incoming, keep);
      }
      if (!keep) break;
    }
    co_await linger();
    close();
  }

  // Large bodies take long to parse and tokenise: they wait for a worker instead of holding a thread that serves
  // others.
  asio::awaitable<Reply> handle(const Request& request) {
    if (request.body.size() < kLargeBody) co_return service_.handle(request);
    const auto work = [](Service& service, const Request& large) -> asio::awaitable<Reply> {
      co_return service.handle(large);
    };
    co_return co_await asio::co_spawn(workers_.get_executor(), work(service_, request), asio::use_awaitable);
  }

  // --- reading ---

  // Nothing if the connection is over; what can't be accepted has been answered then.
  asio::awaitable<std::optional<Incoming>> read_request() {
    if (buffer_.size() == 0) {
      arm(kIdleTimeout);
      const auto [error, size] = co_await socket_.async_read_some(buffer_.prepare(kReadStep), kToken);
      if (error) co_return std::nullopt;
      buffer_.commit(size);
    }
    arm(std::chrono::seconds(service_.options().timeout_s));
    Parser parser;
    parser.header_limit(static_cast<std::uint32_t>(kMaxHead));
    parser.body_limit(kMaxBody);
    auto [error, size] = co_await http::async_read_header(socket_, buffer_, parser, kToken);
    if (!error) {
      if (const int status = refused_head(parser)) {
        co_await refuse(status);
        co_return std::nullopt;
      }
      if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue") && !parser.is_done()) {
        co_await write("HTTP/1.1 100 Continue\r\n\r\n");
        arm(std::chrono::seconds(service_.options().timeout_s));
      }
      std::tie(error, size) = co_await http::async_read(socket_, buffer_, parser, kToken);
    }
    disarm();
    if (error) {
      if (const int status = refused_error(error)) co_await refuse(status);
      co_return std::nullopt;
    }
    co_return to_incoming(parser);
  }

  static int refused_head(const Parser& parser) {
    const auto& message = parser.get();
    if (std::ranges::find(kMethods, message.method()) == kMethods.end()) return 400;
    if (message.target().size() > kMaxTarget) return 414;
    std::size_t headers = 0;
    for (const auto& field : message) {
      constexpr std::size_t kSeparator = 2;
      if (++headers > kMaxHeaders || field.name_string().size() + kSeparator + field.value().size() > kMaxHeaderLine) {
        return 400;
      }
    }
    return 0;
  }

  // The status that answers an error of the parser; 0 if the connection itself is at its end.
  int refused_error(const error_code& error) const {
    if (error == http::error::body_limit) return 413;
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return first_line_size() > kMaxTarget ? 414 : 400;
    }
    const bool ended = error == http::error::end_of_stream || error == http::error::partial_message;
    return !ended && error.category() == http::make_error_code(http::error::bad_value).category() ? 400 : 0;
  }

  std::size_t first_line_size() const {
    const auto data = buffer_.data();
    const std::string_view text(static_cast<const char*>(data.data()), data.size());
    return std::min(text.find('\n'), text.size());
  }

  static Incoming to_incoming(Parser& parser) {
    auto message = parser.release();
    Incoming incoming;
    incoming.keep_alive = message.keep_alive();
    incoming.chunked = message.version() >= 11;
    Request& request = incoming.request;
    request.method = message.method_string();
    const std::string_view target(message.target().data(), message.target().size());
    const std::size_t question = std::min(target.find('?'), target.size());
    request.path = target.substr(0, question);
    request.query = target.substr(std::min(question + 1, target.size()));
    for (const auto& field : message) request.headers.emplace_back(field.name_string(), field.value());
    request.body = std::move(message.body());
    return incoming;
  }

  asio::awaitable<void> refuse(int status) {
    const std::string message(reason_phrase(status));
    const boost::json::object error{{"code", status}, {"message", message}, {"type", "invalid_request_error"}};
    Response response = json_response(boost::json::object{{"error", error}}, status);
    const Incoming unknown;
    co_await write_response(std::move(response), unknown, false);
  }

  // --- writing ---

  // Each returns whether the connection can be used again.

  asio::awaitable<bool> write_response(Response response, const Incoming& incoming, bool keep) {
    keep = keep && response.status < 400;
    std::string text = response_head(response, service_.cors_headers(incoming.request.header("Origin")), keep);
    if (incoming.request.method != "HEAD") text += response.body;
    co_return co_await write(text) && keep;
  }

  asio::awaitable<bool> write_pending(PendingReply& reply, const Incoming& incoming, bool keep) {
    reply_ = &reply;
    begun_ = false;
    std::optional<Response> failure;
    try {
      keep = co_await write_parts(reply, incoming, keep);
    } catch (...) {
      failure = current_exception_response();
    }
    co_await stop_watching();
    if (!failure) co_return keep;
    log_error("{} {}: {}", incoming.request.method, incoming.request.path, failure->body);
    // What has begun as a stream can only be cut off.
    if (!begun_) co_await write_response(std::move(*failure), incoming, false);
    co_return false;
  }

  asio::awaitable<bool> write_parts(PendingReply& reply, const Incoming& incoming, bool keep) {
    reply.start([weak = weak_from_this(), executor = socket_.get_executor()] {
      asio::post(executor, [weak] {
        if (const auto self = weak.lock()) self->wake();
      });
    });
    keep = keep && incoming.chunked;
    steady_clock::time_point last_write = steady_clock::now();
    while (!client_left_ && !stopping_) {
      watch();
      woken_ = false;
      ReplyPart part = reply.poll();
      if (part.response) {
        begun_ = true;
        co_await stop_watching();
        co_return co_await write_response(std::move(*part.response), incoming, keep);
      }
      std::string text;
      if (part.streaming && !begun_) {
        begun_ = true;
        text = stream_head(service_.cors_headers(incoming.request.header("Origin")), incoming.chunked, keep);
      }
      if (begun_ && part.text.empty() && ping_due(reply, last_write)) part.text = ":\n\n";
      append_chunk(text, part.text, part.finished, incoming.chunked);
      if (!text.empty()) {
        if (!co_await write(text)) co_return false;
        last_write = steady_clock::now();
      }
      if (part.finished) co_return keep;
      // During the write nobody waited for the signal.
      if (woken_ || client_left_ || stopping_) continue;
      const bool pings = begun_ && reply.ping_interval.count() > 0;
      signal_.expires_at(pings ? last_write + reply.ping_interval : steady_clock::time_point::max());
      co_await signal_.async_wait(kToken);
    }
    co_return false;
  }

  static bool ping_due(const PendingReply& reply, steady_clock::time_point last_write) {
    return reply.ping_interval.count() > 0 && steady_clock::now() >= last_write + reply.ping_interval;
  }

  asio::awaitable<bool> write(std::string_view text) {
    arm(std::chrono::seconds(service_.options().timeout_s));
    const auto [error, size] = co_await asio::async_write(socket_, asio::buffer(text.data(), text.size()), kToken);
    disarm();
    co_return !error;
  }

  // --- the client while an answer is made ---

  void wake() {
    woken_ = true;
    signal_.cancel();
    if (reply_ != nullptr && reply_->overflowing()) {
      log_warning("a client does not read its answer: connection closed");
      close();
    }
  }

  // Reads what comes: the start of the next request, or the end of the connection.
  void watch() {
    if (watching_ || buffer_.size() >= kReadAhead) return;
    watching_ = true;
    socket_.async_read_some(buffer_.prepare(kReadStep),
                            [self = shared_from_this()](error_code error, std::size_t size) {
                              self->watching_ = false;
                              self->buffer_.commit(size);
                              if (error && error != asio::error::operation_aborted) self->client_left_ = true;
                              if (!error && self->reply_ != nullptr) {
                                self->watch();
                              } else {
                                self->signal_.cancel();
                              }
                            });
  }

  asio::awaitable<void> stop_watching() {
    reply_ = nullptr;
    if (watching_) {
      error_code ignored;
      socket_.cancel(ignored);
    }
    while (watching_) {
      signal_.expires_at(steady_clock::time_point::max());
      co_await signal_.async_wait(kToken);
    }
  }

  // --- the end ---

  asio::awaitable<void> linger() {
    error_code error;
    socket_.shutdown(Socket::shutdown_send, error);
    arm(kLingerTime);
    while (!error) {
      buffer_.clear();
      std::size_t size = 0;
      std::tie(error, size) = co_await socket_.async_read_some(buffer_.prepare(kReadAhead), kToken);
    }
    disarm();
  }

  // Closes the connection unless the deadline is cancelled or moved before.
  void arm(steady_clock::duration time) {
    deadline_.expires_after(time);
    deadline_.async_wait([weak = weak_from_this()](error_code error) {
      if (error) return;
      const auto self = weak.lock();
      // A deadline that was moved in the meantime has not passed.
      if (self && self->deadline_.expiry() <= steady_clock::now()) self->close();
    });
  }

  void disarm() { deadline_.expires_at(steady_clock::time_point::max()); }

  void close() {
    error_code ignored;
    socket_.close(ignored);
  }

  Socket socket_;
  asio::steady_timer deadline_;  // of the current read or write
  asio::steady_timer signal_;    // cancelled when something has happened; expires when a ping is due
  boost::beast::flat_buffer buffer_;
  Service& service_;
  asio::thread_pool& workers_;
  PendingReply* reply_ = nullptr;  // the one being answered
  bool begun_ = false;             // whether some of its answer has been sent
  bool woken_ = false, watching_ = false, client_left_ = false, stopping_ = false;
};

}  // namespace

std::shared_ptr<Session> make_session(Socket socket, Service& service, asio::thread_pool& workers) {
  return std::make_shared<HttpSession>(std::move(socket), service, workers);
}

}  // namespace bankml
