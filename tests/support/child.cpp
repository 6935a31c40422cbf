#include "tests/support/child.hpp"

#include <signal.h>
#include <sys/wait.h>

#include <stdexcept>
#include <string>

#include "base/child.hpp"
#include "base/processes.hpp"

namespace sluice::test {

Child::Child(pid_t pid) : pid_(pid) {
  if (pid_ < 0) throw std::runtime_error("no new process");
}

Child::~Child() {
  if (!ended()) wait(0ms);
}

void Child::signal(int number) const {
  if (!ended()) kill(pid_, number);
}

void Child::stop() const {
  signal(SIGSTOP);
  siginfo_t how{};
  waitid(P_PID, static_cast<id_t>(pid_), &how, WSTOPPED | WEXITED | WNOWAIT);
}

bool Child::sleeps() const {
  const std::string stat = base::read_proc(pid_, "stat", 256);
  const std::size_t name_end = stat.rfind(") ");  // the name may contain anything
  return name_end != std::string::npos && stat.at(name_end + 2) == 'S';
}

bool Child::reap() {
  int status = 0;
  if (!ended() && waitpid(pid_, &status, WNOHANG) == pid_) exit_code_ = base::exit_code(status);
  return ended();
}

int Child::wait(std::chrono::milliseconds patience) {
  if (!eventually([this] { return reap(); }, patience)) {
    int status = 0;
    kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
    exit_code_ = base::exit_code(status);
  }
  return *exit_code_;
}

}  // namespace sluice::test
