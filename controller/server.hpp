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
  std::shared_ptr<const Process> process;
  std::uint64_t since_ns = 0;
  bool greeted = false;     ///< It has sent a request of the right form.
  std::uint64_t slots = 0;  ///< Bit per slot that was attached over it.
};

/// What happens on connections is decided elsewhere.
class RequestHandler {
 public:
  virtual ~RequestHandler() = default;
  virtual shm::Reply answer(Connection& from, const shm::Request& request) = 0;
  virtual void hung_up(const Connection& gone) = 0;
};

/// The connections of the session's socket. Nothing here waits for a peer: one that does not read
/// its reply loses its connection, one that never asks is dropped, and of too many the oldest
/// without a slot goes.
class Server {
 public:
  /// `listener` is a listening socket that outlives this object.
  Server(int listener, RequestHandler& handler, Tally& tally);

  /// Becomes readable when serve() has something to do.
  [[nodiscard]] int fd() const noexcept { return epoll_.get(); }

  /// Accepts, reads and answers what is there, at most one request per connection.
  void serve();

  /// On every heartbeat: drops connections that never asked.
  void drop_silent(std::uint64_t now_ns);

  /// Whether somebody has connected and not asked yet.
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
  std::list<Connection> connections_;  // oldest first; addresses are epoll's keys
  bool accepting_ = true;
};

/// A reply that refuses, with one line for people.
shm::Reply refusal(shm::ReplyStatus status, std::string_view text);

}  // namespace sluice::controller
