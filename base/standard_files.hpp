#pragma once
#include <fcntl.h>
#include <unistd.h>

#include <array>

namespace sluice::base {

/// While it lives, the numbers 0 to 2 are taken, also in a process that has closed them: a file
/// that is opened meanwhile is never what a program writes its messages to.
class StandardFiles {
 public:
  StandardFiles() noexcept {
    for (int& file : taken_) {
      file = open("/dev/null", O_RDWR | O_CLOEXEC);
      if (file > STDERR_FILENO) close(file);
      if (file < 0 || file > STDERR_FILENO) {
        file = -1;
        return;
      }
    }
  }
  ~StandardFiles() {
    for (const int file : taken_) {
      if (file >= 0) close(file);
    }
  }
  StandardFiles(const StandardFiles&) = delete;
  StandardFiles& operator=(const StandardFiles&) = delete;

 private:
  std::array<int, 3> taken_{-1, -1, -1};
};

}  // namespace sluice::base
