#pragma once
#include <sys/stat.h>

#include <string>
#include <string_view>

#include "base/fd.hpp"

namespace sluice::controller {

/// The session's socket: SOCK_SEQPACKET, mode 0600, in a folder of mode 0700. Only the holder of
/// the board's controller lock creates it. So an existing socket of that name belongs to a dead
/// controller, and is replaced. The destructor removes the name.
class Listener {
 public:
  /// Throws std::runtime_error with one line if the socket cannot be created.
  explicit Listener(std::string_view session);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
  base::Fd fd_;
  struct stat bound_ {};
};

}  // namespace sluice::controller
