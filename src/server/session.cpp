#include "server/session.hpp"

#include <fmt/core.h>

#include <algorithm>
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
#include <boost/beast/http/read.hpp>
#include <chrono>
#include <optional>
#include <utility>

#include "bankml/base/log.hpp"
#include "bankml/base/memory_reserve.hpp"
#include "server/errors.hpp"
#include "server/http_text.hpp"
#include "server/request_head.hpp"

namespace bankml {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;
using std::chrono::steady_clock;

constexpr std::size_t kLargeRequest = 64 << 10;
// Read ahead while an answer is being made, to notice a client that leaves; after that much the next request has to
// wait.
constexpr std::size_t kReadAhead = 64 << 10, kReadStep = 4096;
// A client that is still sending when it is refused must get the chance to read why.
constexpr auto kLingerTime = std::chrono::seconds(2);
// What every answer begins with, and the pause between two bytes of it that are sent ahead to find out whether a client
// that sends no more still listens; it doubles each time.
constexpr std::string_view kAnswerStart = "HTTP/1.1 ";
constexpr auto kFirstProbePause = std::chrono::milliseconds(500);

constexpr std::string_view kPing = ":\n\n";  // a comment, which clients of event streams skip

// Made beforehand, since nothing can be made then. The connection's end is the body's.
constexpr std::string_view kNoMemory =
    "HTTP/1.1 503 Service Unavailable\r\n"
    "Content-Type: application/json; charset=utf-8\r\n"
    "Retry-After: 1\r\n"
    "Connection: close\r\n\r\n"
    R"({"error":{"code":503,"message":"out of memory: try again later","type":"unavailable_error"}})";

constexpr auto kToken = asio::as_tuple(asio::use_awaitable);

class HttpSession final : public Session, public std::enable_shared_from_this<HttpSession> {
 public:
  HttpSession(Socket socket, ConnectionCounter::Ticket ticket, Service& service, asio::thread_pool& workers)
      : socket_(std::move(socket)),
        ticket_(std::move(ticket)),
        deadline_(socket_.get_executor()),
        signal_(socket_.get_executor()),
        buffer_(kMaxHead + kReadAhead),
        service_(service),
        workers_(workers) {}

  void start() override {
    // The coroutine owns the session: a parameter lives in its frame, a capture would not.
    const auto serve = [](std::shared_ptr<HttpSession> self) -> asio::awaitable<void> {
      try {
        co_await self->run();
      } catch (const std::exception& error) {
        log_error("a connection is closed: {}", error.what());
        self->close();  // what is still waiting for it ends
      }
    };
    asio::co_spawn(socket_.get_executor(), serve(shared_from_this()), asio::detached);
  }

  void finish() override {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      self->finishing_ = true;
      if (self->idle_) self->close();
    });
  }

  void shut_down() override {
    asio::post(socket_.get_executor(), [self = shared_from_this()] {
      self->stopping_ = true;
      self->close();
      self->signal_.cancel();
    });
  }

 private:
  asio::awaitable<void> run() {
    for (int served = 1; !stopping_ && !finishing_; ++served) {
      std::optional<Incoming> incoming = co_await read_request();
      if (!incoming) break;
      if (memory_is_short()) {
        co_await write(kNoMemory);
        break;
      }
      const Activity::Scope scope(service_.activity());
      const auto start = steady_clock::now();
      may_keep_ = incoming->keep_alive && served < kMaxRequests;
      status_ = 0;
      Reply reply = co_await handle(incoming->request);
      // Up to 100 MiB: what may wait long in the queue does not need them any more.
      std::string().swap(incoming->request.body);
      body_share_.reset();
      bool keep = false;
      if (auto* response = std::get_if<Response>(&reply)) {
        keep = co_await write_response(std::move(*response), *incoming);
      } else {
        keep = co_await write_pending(*std::get<std::unique_ptr<PendingReply>>(reply), *incoming);
      }
      log_answer(incoming->request, steady_clock::now() - start);
      if (!keep) break;
    }
    if (!client_left_ && !input_ended_) co_await linger();
    close();
  }

  // Status 0: the client was gone before its answer began.
  void log_answer(const Request& request, steady_clock::duration time) const {
    log_trace("request {}: {} {}: status {}, {:.1f} ms", request.id, request.method, printable_start(request.path),
              status_, std::chrono::duration<double, std::milli>(time).count());
  }

  // Large bodies take long to parse and tokenise: they wait for a worker instead of holding a thread that serves
  // others.
  asio::awaitable<Reply> handle(const Request& request) {
    if (request.body.size() < kLargeRequest) co_return service_.handle(request);
    const auto work = [](Service& service, const Request& large) -> asio::awaitable<Reply> {
      co_return service.handle(large);
    };
    co_return co_await asio::co_spawn(workers_.get_executor(), work(service_, request), asio::use_awaitable);
  }

  // --- reading ---

  // Nothing if the connection is over; what can't be accepted has been answered then.
  asio::awaitable<std::optional<Incoming>> read_request() {
    const std::optional<std::size_t> head = co_await read_head();
    if (!head) co_return std::nullopt;
    RequestParser parser;
    parser.header_limit(static_cast<std::uint32_t>(kMaxHead));
    parser.body_limit(boost::none);  // which of the limits holds shows in the header
    error_code error;
    buffer_.consume(parser.put(asio::buffer(buffer_.data().data(), *head), error));
    const bool understood = !error || error == http::error::need_more;
    if (const Refusal refusal = understood ? refused_head(parser) : kMalformed) {
      co_await refuse(refusal);
      co_return std::nullopt;
    }
    const std::uint64_t limit = body_limit(parser, service_.policy()->limits.body_bytes);
    if (parser.content_length().value_or(0) > limit) {
      co_await refuse(kLargeBody);
      co_return std::nullopt;
    }
    parser.body_limit(limit);
    if (boost::beast::iequals(parser.get()[http::field::expect], "100-continue") && !parser.is_done()) {
      co_await write("HTTP/1.1 100 Continue\r\n\r\n");
    }
    if (const std::optional<Refusal> refusal = co_await read_body(parser)) {
      if (*refusal) co_await refuse(*refusal);
      co_return std::nullopt;
    }
    co_return take_request(parser);
  }

  // Nothing if it has come as a whole. Else an answer, or an empty one if the connection is over.
  asio::awaitable<std::optional<Refusal>> read_body(RequestParser& parser) {
    const std::int64_t most = kBodiesAtOnce * service_.policy()->limits.body_bytes;
    body_share_.emplace(service_.bodies());
    arm(std::chrono::seconds(service_.options().timeout_s));
    while (!parser.is_done()) {
      const auto [error, size] = co_await http::async_read_some(socket_, buffer_, parser, kToken);
      if (error) {
        disarm();
        co_return refused_error(error);
      }
      const std::size_t received = parser.get().body().size();
      if (received > kLargeRequest && !body_share_->grow_to(static_cast<std::int64_t>(received), most)) {
        disarm();
        co_return kManyBodies;
      }
    }
    disarm();
    co_return std::nullopt;
  }

  // The size of the head that stands in the buffer.
  asio::awaitable<std::optional<std::size_t>> read_head() {
    HeadScanner scanner;
    const ServerLimits limits = service_.policy()->limits;
    idle_ = buffer_.size() == 0;
    arm(std::chrono::seconds(idle_ ? limits.idle_timeout_s : limits.header_timeout_s));
    for (;;) {
      const auto data = buffer_.data();
      const HeadScanner::Found found = scanner.scan({static_cast<const char*>(data.data()), data.size()});
      if (found.refusal || found.size != 0) {
        disarm();
        if (found.refusal) co_await refuse(found.refusal);
        co_return found.refusal ? std::nullopt : std::optional(found.size);
      }
      // The end is told once: another read would wait for it in vain.
      if (input_ended_) co_return std::nullopt;
      const auto [error, size] = co_await socket_.async_read_some(buffer_.prepare(kReadStep), kToken);
      if (error) co_return std::nullopt;
      buffer_.commit(size);
      if (std::exchange(idle_, false)) arm(std::chrono::seconds(limits.header_timeout_s));
    }
  }

  asio::awaitable<void> refuse(Refusal refusal) {
    const boost::json::object error{{"code", refusal.status},
                                    {"message", refusal.why},
                                    {"type", refusal.status == 503 ? "unavailable_error" : "invalid_request_error"}};
    Response response = json_response(boost::json::object{{"error", error}}, refusal.status);
    Incoming unknown;
    unknown.request.id = request_id({});
    may_keep_ = false;
    co_await write_response(std::move(response), unknown);
  }

  // --- writing ---

  KeepAlive keep_alive() const {
    return {.kept = may_keep_ && !finishing_, .seconds = service_.policy()->limits.idle_timeout_s};
  }

  Headers common_headers(const Request& request) const {
    Headers headers = service_.cors_headers(request.header("Origin"));
    headers.emplace_back("X-Request-Id", request.id);
    return headers;
  }

  // Each returns whether the connection can be used again.

  asio::awaitable<bool> write_response(Response response, const Incoming& incoming) {
    may_keep_ = may_keep_ && response.status < 400;
    status_ = response.status;
    const KeepAlive keep = keep_alive();
    std::string text = response_head(response, common_headers(incoming.request), keep);
    if (incoming.request.method != "HEAD") text += response.body;
    co_return co_await write(std::string_view(text).substr(std::exchange(sent_ahead_, 0))) && keep.kept;
  }

  asio::awaitable<bool> write_pending(PendingReply& reply, const Incoming& incoming) {
    // Whatever ends this function: the reply may be gone then.
    const auto forget = [](HttpSession* self) { self->reply_ = nullptr; };
    const std::unique_ptr<HttpSession, decltype(forget)> forgets(this, forget);
    reply_ = &reply;
    reply.request_id = incoming.request.id;
    begun_ = false;
    bool keep = false;
    std::optional<Response> failure;
    try {
      keep = co_await write_parts(reply, incoming);
    } catch (...) {
      failure = current_exception_response();
    }
    co_await stop_watching();
    if (!failure) co_return keep && !client_left_;  // who may have left while the last part was being sent
    log_error("request {}: {} {}: {}", incoming.request.id, incoming.request.method,
              printable_start(incoming.request.path), failure->body);
    // What has begun as a stream can only be cut off.
    if (!begun_) co_await write_response(std::move(*failure), incoming);
    co_return false;
  }

  asio::awaitable<bool> write_parts(PendingReply& reply, const Incoming& incoming) {
    reply.start([weak = weak_from_this(), executor = socket_.get_executor()] {
      asio::post(executor, [weak] {
        if (const auto self = weak.lock()) self->wake();
      });
    });
    may_keep_ = may_keep_ && incoming.chunked;
    bool keep = false;
    last_write_ = steady_clock::now();
    while (!client_left_ && !stopping_) {
      watch();
      woken_ = false;
      ReplyPart part = reply.poll();
      if (part.response) {
        begun_ = true;
        co_await stop_watching();
        co_return co_await write_response(std::move(*part.response), incoming);
      }
      std::string text;
      if (part.streaming && !begun_) {
        begun_ = true;
        status_ = 200;
        const KeepAlive kept = keep_alive();
        keep = kept.kept;
        text = stream_head(common_headers(incoming.request), incoming.chunked, kept);
        text.erase(0, std::exchange(sent_ahead_, 0));
      }
      if (begun_ && part.text.empty() && ping_due(reply)) part.text = kPing;
      append_chunk(text, part.text, part.finished, incoming.chunked);
      if (text.empty() && input_ended_ && steady_clock::now() >= next_probe_) text = probe(incoming.chunked);
      if (!text.empty()) {
        if (!co_await write(text)) co_return false;
        last_write_ = steady_clock::now();
      }
      if (part.finished) co_return keep;
      // During the write nobody waited for the signal.
      if (woken_ || client_left_ || stopping_) continue;
      signal_.expires_at(next_turn(reply));
      co_await signal_.async_wait(kToken);
    }
    co_return false;
  }

  // When something is due although nothing has happened.
  steady_clock::time_point next_turn(const PendingReply& reply) const {
    const bool pings = begun_ && reply.ping_interval.count() > 0;
    const auto ping = pings ? last_write_ + reply.ping_interval : steady_clock::time_point::max();
    return input_ended_ ? std::min(ping, next_probe_) : ping;
  }

  bool ping_due(const PendingReply& reply) const {
    return reply.ping_interval.count() > 0 && steady_clock::now() >= last_write_ + reply.ping_interval;
  }

  // The end of a client's input says that it sends no more, or that it has left: which of the two shows only when
  // something is sent to it. So the answer's first bytes, the same whatever becomes of it, go out one at a time, and
  // comments once it has begun. A client that has left answers with a reset, which the wait for errors sees.
  std::string probe(bool chunked) {
    probe_pause_ *= 2;
    next_probe_ = steady_clock::now() + probe_pause_;
    std::string text;
    if (begun_) {
      append_chunk(text, kPing, false, chunked);
    } else if (sent_ahead_ < kAnswerStart.size()) {
      text = kAnswerStart[sent_ahead_++];
    }
    return text;
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
    if (watching_ || input_ended_ || buffer_.size() >= kReadAhead) return;
    socket_.async_read_some(buffer_.prepare(kReadStep),
                            [self = shared_from_this()](error_code error, std::size_t size) {
                              self->watching_ = false;
                              self->buffer_.commit(size);
                              self->note_input(error);
                            });
    watching_ = true;
  }

  void note_input(error_code error) {
    try {
      if (!error && reply_ != nullptr) return watch();
      if (error == asio::error::eof) note_end_of_input();
    } catch (const std::exception& failure) {
      log_error("a connection is closed: {}", failure.what());
      client_left_ = true;
    }
    if (error && error != asio::error::eof && error != asio::error::operation_aborted) client_left_ = true;
    signal_.cancel();
  }

  void note_end_of_input() {
    input_ended_ = true;
    probe_pause_ = kFirstProbePause;
    next_probe_ = steady_clock::now();
    socket_.async_wait(Socket::wait_error, [self = shared_from_this()](error_code error) {
      self->watching_errors_ = false;
      if (!error) self->client_left_ = true;
      self->signal_.cancel();
    });
    watching_errors_ = true;
  }

  asio::awaitable<void> stop_watching() {
    reply_ = nullptr;
    while (watching_ || watching_errors_) {
      // Each time: a read that had ended before may have begun another wait.
      error_code ignored;
      socket_.cancel(ignored);
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
  const ConnectionCounter::Ticket ticket_;
  asio::steady_timer deadline_;  // of the current read or write
  asio::steady_timer signal_;    // cancelled when something has happened; expires when a ping is due
  boost::beast::flat_buffer buffer_;
  Service& service_;
  asio::thread_pool& workers_;
  std::optional<BodyCounter::Share> body_share_;  // of the request that is being read or handled
  PendingReply* reply_ = nullptr;                 // the one being answered
  int status_ = 0;                                // of its answer
  bool begun_ = false;                            // whether its header has been sent
  std::size_t sent_ahead_ = 0;                    // bytes of kAnswerStart that have been sent before it
  steady_clock::time_point last_write_, next_probe_;
  steady_clock::duration probe_pause_{};
  bool may_keep_ = false;     // whether client and answer allow to use the connection again
  bool idle_ = false;         // between two requests
  bool input_ended_ = false;  // the client has sent all it will
  bool woken_ = false, watching_ = false, watching_errors_ = false;
  bool client_left_ = false, finishing_ = false, stopping_ = false;
};

}  // namespace

std::shared_ptr<Session> make_session(Socket socket, ConnectionCounter::Ticket ticket, Service& service,
                                      asio::thread_pool& workers) {
  return std::make_shared<HttpSession>(std::move(socket), std::move(ticket), service, workers);
}

}  // namespace bankml
