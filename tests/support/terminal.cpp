#include "tests/support/terminal.hpp"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utmp.h>

#include <array>
#include <cstdlib>
#include <stdexcept>

namespace sluice::test {
namespace {

winsize size_of(int columns, int rows) {
  return {static_cast<unsigned short>(rows), static_cast<unsigned short>(columns), 0, 0};
}

bool same(const termios& a, const termios& b) {
  return a.c_iflag == b.c_iflag && a.c_oflag == b.c_oflag && a.c_cflag == b.c_cflag &&
         a.c_lflag == b.c_lflag;
}

pid_t start_on(int terminal, const std::vector<std::string>& command) {
  std::vector<char*> argv;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid != 0) return pid;
  login_tty(terminal);
  setenv("TERM", "xterm", 0);
  execv(argv[0], argv.data());
  _exit(127);
}

}  // namespace

Pty::Pty(int columns, int rows) {
  const winsize size = size_of(columns, rows);
  std::array<int, 2> ends{};
  if (openpty(&ends[0], &ends[1], nullptr, nullptr, &size) != 0) {
    throw std::runtime_error("no terminal");
  }
  for (const int fd : ends) fcntl(fd, F_SETFD, FD_CLOEXEC);
  master = base::Fd(ends[0]);
  slave = base::Fd(ends[1]);
  tcgetattr(slave.get(), &settings);
}

Terminal::Terminal(const std::vector<std::string>& command, int columns, int rows)
    : Pty(columns, rows), Child(start_on(slave.get(), command)) {}

void Terminal::type(const std::string& keys) const {
  if (write(master.get(), keys.data(), keys.size()) < 0) perror("write to the terminal");
}

void Terminal::resize(int columns, int rows) const {
  const winsize size = size_of(columns, rows);
  ioctl(master.get(), TIOCSWINSZ, &size);
}

bool Terminal::read_some() {
  pollfd wait{master.get(), POLLIN, 0};
  if (poll(&wait, 1, 50) <= 0) return false;
  std::array<char, 4096> chunk{};
  const ssize_t got = read(master.get(), chunk.data(), chunk.size());
  if (got > 0) written_.append(chunk.data(), static_cast<std::size_t>(got));
  return got > 0;
}

bool Terminal::shows(const std::string& words) {
  const auto deadline = std::chrono::steady_clock::now() + kProgramPatience;
  while (std::chrono::steady_clock::now() < deadline) {
    if (const auto at = written_.find(words); at != std::string::npos) {
      written_.erase(0, at + words.size());
      return true;
    }
    read_some();
  }
  return false;
}

int Terminal::finish() {
  const auto ended = [this] {
    read_some();
    return reap();
  };
  const int exit_code = eventually(ended, kProgramPatience) ? wait() : -1;
  while (read_some()) {
  }
  return exit_code;
}

bool Terminal::is_as_before() const {
  termios now{};
  return tcgetattr(slave.get(), &now) == 0 && same(now, settings);
}

}  // namespace sluice::test
