#include "tests/tools/terminal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utmp.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>

namespace sluice::tools::test {
namespace {

using Clock = std::chrono::steady_clock;

/// Generous: a loaded two-core machine must not fail a test.
constexpr std::chrono::seconds kPatience{30};

winsize size_of(int columns, int rows) {
  return {static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0, 0};
}

bool same(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag &&
         a.c_lflag == b.c_lflag;
}

}  // namespace

Terminal::Terminal(const std::vector<std::string>& command, int columns, int rows) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  winsize size = size_of(columns, rows);
  if (openpty(&fd_, &slave_, nullptr, nullptr, &size) != 0) return;
  for (const int fd : {fd_, slave_}) fcntl(fd, F_SETFD, FD_CLOEXEC);
  tcgetattr(slave_, &before_);
  pid_ = fork();
  if (pid_ != 0) return;
  login_tty(slave_);
  setenv("TERM", "xterm", 0);
  execvp(argv[0], argv.data());
  _exit(127);
}

Terminal::~Terminal() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  for (const int fd : {fd_, slave_}) {
    if (fd >= 0) close(fd);
  }
}

void Terminal::type(const std::string& keys) const {
  if (write(fd_, keys.data(), keys.size()) < 0) perror("write to the terminal");
}

void Terminal::resize(int columns, int rows) const {
  const winsize size = size_of(columns, rows);
  ioctl(fd_, TIOCSWINSZ, &size);
}

bool Terminal::read_some() {
  pollfd wait{fd_, POLLIN, 0};
  if (poll(&wait, 1, 50) <= 0) return false;
  std::array<char, 4096> chunk{};
  const ssize_t got = read(fd_, chunk.data(), chunk.size());
  if (got > 0) written_.append(chunk.data(), static_cast<std::size_t>(got));
  return got > 0;
}

bool Terminal::shows(const std::string& words) {
  const auto deadline = Clock::now() + kPatience;
  while (Clock::now() < deadline) {
    if (const auto at = written_.find(words); at != std::string::npos) {
      written_.erase(0, at + words.size());
      return true;
    }
    read_some();
  }
  return false;
}

int Terminal::finish() {
  const auto deadline = Clock::now() + kPatience;
  int status = 0;
  while (waitpid(pid_, &status, WNOHANG) == 0) {
    read_some();
    if (Clock::now() > deadline) return -1;
  }
  pid_ = -1;
  while (read_some()) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool Terminal::is_as_before() const {
  termios now{};
  return tcgetattr(slave_, &now) == 0 && same(now, before_);
}

}  // namespace sluice::tools::test
