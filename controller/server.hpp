#pragma once
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string_view>

#include "base/fd.hpp"
#include "controller/admission.hpp"
#include "controller/recent_lines.hpp"
#include "controller/tally.hpp"
#include "shm/messages.hpp"

namespace sluice::controller {

/// One connection.
struct Connection {
  base::Fd fd;
  Peer peer;
  std::uint64_t since_ns = 0;
  bool greeted = false;     ///< The peer has sent a well-formed request.
  std::uint64_t slots = 0;  ///< One bit per slot that was attached over this connection.
  bool has_board = false;   ///< Was sent the board's descriptor.
  int enclosed = -1;        ///< A descriptor to send with the next reply. Belongs to the handler.
};

/// Decides on the requests that the server receives.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  virtual shm::Reply answer(Connection& from, const shm::Request& request) = 0;
  virtual void report(const Connection& from, const shm::Report& report) = 0;
  virtual void hung_up(const Connection& gone) = 0;
};

/// The connections of the session's socket. The server never waits for a peer. It drops the
/// connection of a peer that never sends a request. Of too many connections it drops the oldest one
/// without a slot; of too many of one user, the oldest one of that user. A descriptor that comes
/// with a message is closed by the kernel, because no message is read with room for one.
class Server {
 public:
  /// `listener` is a listening socket that outlives this object.
  Server(int listener, RequestHandler& handler, Tally& tally,
         Admission& admission = OwnUser::instance());

  /// Becomes readable when serve() has something to do.
  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }

  /// Accepts connections and answers requests, at most one per connection. Never blocks.
  void serve();

  /// From now on accepts at this socket. Takes what waits at the one before, which still lives.
  void listen_on(int listener);

  /// On every heartbeat: drops connections that never sent a request.
  void drop_silent(std::uint64_t now_ns);

  /// Whether a connection has not sent its first request yet.
  [[nodiscard]] bool expects_request() const noexcept;

 private:
  void accept_all();
  void accept_one(base::Fd fd);
  void read_from(Connection& connection);
  void close_connection(Connection& connection);
  bool make_room(std::optional<uid_t> of_user);
  bool has_room_for(const Peer& peer);
  void listen_for_connections(bool on);

  int listener_;
  RequestHandler& handler_;
  Tally& tally_;
  Admission& admission_;
  base::Fd epoll_;
  std::list<Connection> connections_;  // oldest first; epoll refers to their addresses
  bool accepting_ = true;
  RecentLines failed_;   ///< Connections that could not be accepted, by error number.
  RecentLines refused_;  ///< Malformed messages, by pid.
  RecentLines dropped_;  ///< Connections of users who may not connect, or have too many, by uid.
  RecentLines silent_;   ///< Connections without a request, by uid.
};

/// A reply with one line for the user.
shm::Reply reply_with(shm::ReplyStatus status, std::string_view text);

/// The same, for a request that is refused.
inline shm::Reply refusal(shm::ReplyStatus status, std::string_view text) {
  return reply_with(status, text);
}

}  // namespace sluice::controller
