#pragma once
#include <cstdint>
#include <list>
#include <memory>

#include "base/fd.hpp"
#include "controller/process.hpp"
#include "controller/tally.hpp"
#include "shm/messages.hpp"

namespace sluice::controller {

/// One connection of a process of this user.
struct Connection {
  base::Fd fd;
  std::shared_ptr<const ClientProcess> process;
  std::uint64_t since_ns = 0;
  bool greeted = false;     ///< The peer has sent a well-formed request.
  std::uint64_t slots = 0;  ///< One bit per slot that was attached over this connection.
};

/// Decides on the requests that the server receives.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  virtual shm::Reply answer(Connection& from, const shm::Request& request) = 0;
  virtual void hung_up(const Connection& gone) = 0;
};

/// The connections of the session's socket. The server never waits for a peer. It drops the
/// connection of a peer that never sends a request. Of too many connections it drops the oldest one
/// without a slot.
class Server {
 public:
  /// `listener` is a listening socket that outlives this object.
  Server(int listener, RequestHandler& handler, Tally& tally);

  /// Becomes readable when serve() has something to do.
  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }

  /// Accepts connections and answers requests, at most one per connection. Never blocks.
  void serve();

  /// On every heartbeat: drops connections that never sent a request.
  void drop_silent(std::uint64_t now_ns);

  /// Whether a connection has not sent its first request yet.
  [[nodiscard]] bool expects_request() const noexcept;

 private:
  void accept_all();
  void accept_one(base::Fd fd);
  void read_from(Connection& connection);
  void close_connection(Connection& connection);
  bool make_room();
  void listen_for_connections(bool on);

  int listener_;
  RequestHandler& handler_;
  Tally& tally_;
  base::Fd epoll_;
  std::list<Connection> connections_;  // oldest first; epoll refers to their addresses
  bool accepting_ = true;
};

/// A reply that refuses a request, with one line for the user.
shm::Reply refusal(shm::ReplyStatus status, std::string_view text);

}  // namespace sluice::controller
