#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "intercept/client/seat.hpp"
#include "shm/messages.hpp"

namespace sluice::intercept {

/// A client's connection to the controller. The client needs none: it only tells the controller
/// that the process has not exec'd, and a new controller that the client is there. So a lost
/// connection is replaced without a word, and no call here waits for the controller.
///
/// Used by the watcher's thread, which calls tick() every 20 ms.
class ControllerLink {
 public:
  /// Owns `connection` from then on.
  void open(int connection) noexcept;

  /// Notices that the connection is lost, and asks for another one at `socket_path`.
  void tick(const Seat& seat, const std::string& socket_path, std::uint64_t now_ns) noexcept;

  /// Unless the program has closed it and has another file under its number.
  void close() noexcept;

  /// To be polled for POLLRDHUP; -1 if there is none.
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  [[nodiscard]] bool is_lost() const noexcept;
  void ask_again(const Seat& seat, const std::string& socket_path) noexcept;
  void take_reply(const shm::Reply& reply, int slot, std::uint64_t now_ns) noexcept;

  int fd_ = -1;
  ino_t identity_ = 0;  ///< Of the connection's socket.
  bool asked_ = false;  ///< The reply is still to come.
  std::uint64_t next_try_ns_ = 0;
};

}  // namespace sluice::intercept
