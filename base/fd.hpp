#pragma once
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>

/// File descriptors.
namespace sluice::base {

/// Owner of a file descriptor. Empty when negative.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) noexcept : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { reset(); }

  void reset() noexcept {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }
  /// Gives the descriptor up without closing it.
  [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }
  [[nodiscard]] int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Whether `path` still leads to the file behind `fd`. Between open and lock, another process may
/// have removed the name.
inline bool still_named(int fd, const std::string& path) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(path.c_str(), &named) == 0 &&
         opened.st_ino == named.st_ino && opened.st_dev == named.st_dev;
}

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

/// For the whole life of a program: descriptors 0 to 2 that it was started without stay as good as
/// closed, reads and writes fail, but no file that it opens gets their numbers, and with it what
/// the program prints. The programs that it becomes or starts find them closed.
inline void hold_standard_files() noexcept {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(file, F_GETFD) >= 0) continue;
    const int held = open("/dev/null", (file == STDIN_FILENO ? O_WRONLY : O_RDONLY) | O_CLOEXEC);
    if (held > STDERR_FILENO) close(held);  // another thread was faster
  }
}

}  // namespace sluice::base
