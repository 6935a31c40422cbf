#pragma once
#include <sys/stat.h>

#include <string>
#include <string_view>

#include "base/fd.hpp"

namespace sluice::controller {

/// The session's socket: SOCK_SEQPACKET, mode 0600, in a folder of mode 0700. Only the holder of
/// the board's controller lock creates it. So an existing socket of that name belongs to a dead
/// controller, and is replaced. The name appears when it can be connected to. The destructor
/// removes the name.
///
/// The socket of the session `node` has mode 0666, in the folder that its service has locked.
class Listener {
 public:
  /// Throws std::runtime_error with one line if the socket cannot be created.
  explicit Listener(std::string_view session);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  /// The destructor leaves the name, so that new programs still find the session while there is no
  /// controller.
  void leave_name() noexcept { leaves_name_ = true; }

  /// If the name is gone (after a clean-up of /dev/shm), listens at the name again: then returns
  /// the socket of before, with the connections that it has not accepted. Empty if the name is
  /// there, or cannot be made now. Says once if it is another's.
  [[nodiscard]] base::Fd restore();

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  [[nodiscard]] base::Fd listen_at_name();

  std::string path_;
  bool is_node_;
  bool leaves_name_ = false;
  bool said_ = false;
  base::Fd fd_;
  struct stat bound_ {};
};

}  // namespace sluice::controller
