#pragma once
// One connection: reads requests, hands them to the service, writes the answers.
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <memory>

#include "server/connections.hpp"
#include "server/service.hpp"

namespace bankml {

using Strand = boost::asio::strand<boost::asio::io_context::executor_type>;
using Socket = boost::asio::basic_stream_socket<boost::asio::generic::stream_protocol, Strand>;

class Session {
 public:
  virtual ~Session() = default;
  virtual void start() = 0;
  // Any thread: no further requests. The connection closes at once if it is idle, else after the present answer.
  virtual void finish() = 0;
  // Any thread: gives up what is running and closes the connection.
  virtual void shut_down() = 0;
};

// The session keeps itself alive from start() until its connection is closed. `service` outlives it.
// `workers` handle large requests and are joined before the session is destroyed.
std::shared_ptr<Session> make_session(Socket socket, ConnectionCounter::Ticket ticket, Service& service,
                                      boost::asio::thread_pool& workers);

}  // namespace bankml
