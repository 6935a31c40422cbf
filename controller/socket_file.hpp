#pragma once
#include <sys/stat.h>

#include <string>

#include "base/fd.hpp"

namespace sluice::controller {

/// A listening unix stream socket of mode 0600. The destructor removes its name if the name still
/// is this socket's.
class SocketFile {
 public:
  /// Replaces the socket of a process that has ended. Throws std::runtime_error, one line, if
  /// another process listens there, if the path is no socket, or if it cannot be made.
  explicit SocketFile(std::string path);
  ~SocketFile();
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;

  [[nodiscard]] int fd() const noexcept { return fd_.get(); }

 private:
  std::string path_;
  base::Fd fd_;
  struct stat bound_ {};
};

}  // namespace sluice::controller
