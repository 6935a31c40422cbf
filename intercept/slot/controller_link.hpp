#pragma once
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "intercept/slot/client_slot.hpp"
#include "shm/messages.hpp"

namespace sluice::intercept {

/// The socket that has this number; 0 if none. The program may close ours and take its number.
[[nodiscard]] ino_t socket_identity(int number) noexcept;

/// A client's connection to the controller. The client does not need it to work. The connection
/// shows the controller that the process has not exec'd, and shows a new controller that the client
/// exists. A lost connection is replaced without a message, and no call here waits for the
/// controller.
///
/// Used by the watcher's thread, which calls tick() every 20 ms.
class ControllerLink {
 public:
  /// Takes ownership of `connection`.
  void open(int connection) noexcept;

  /// Checks whether the connection is lost, and then asks for a new one at `socket_path`.
  void tick(const Seat& seat, const std::string& socket_path, std::uint64_t now_ns) noexcept;

  /// Of a reader. A report that cannot be sent now is dropped: the next one says the same and more.
  void report(const shm::Report& report) const noexcept;

  /// Does not close a file of the program that has the number now, because the program closed ours.
  void close() noexcept;

  /// The descriptor, to be polled for POLLRDHUP; -1 if there is none.
  [[nodiscard]] int fd() const noexcept { return fd_; }

 private:
  [[nodiscard]] bool is_lost() const noexcept;
  void ask_again(const Seat& seat, const std::string& socket_path) noexcept;
  void take_reply(const shm::Reply& reply, int slot, std::uint64_t now_ns) noexcept;

  int fd_ = -1;
  ino_t identity_ = 0;  ///< Inode of the connection's socket.
  bool asked_ = false;  ///< A request was sent and its reply has not arrived.
  std::uint64_t next_try_ns_ = 0;
};

}  // namespace sluice::intercept
