#include "controller/slice_trial.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <utility>

namespace sluice::controller {

SliceTrial::SliceTrial(const std::vector<std::string>& command) {
  constexpr int kNice = 10;
  const base::Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  base::ChildOptions options;
  options.args = command;
  options.stdin_fd = null.get();
  options.stdout_fd = out_.write.get();
  options.stderr_fd = null.get();
  options.signal_when_we_die = SIGKILL;
  options.own_group = true;
  pid_ = base::start_child(options);
  out_.write = base::Fd();
  fcntl(out_.read.get(), F_SETFL, O_NONBLOCK);
  setpriority(PRIO_PGRP, static_cast<id_t>(pid_), kNice);
}

bool SliceTrial::ended() const noexcept {
  siginfo_t info{};
  // The leader stays a zombie, so that no other group gets its number.
  return waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
         info.si_pid == pid_;
}

std::string SliceTrial::printed() const {
  std::string text(4096, '\0');
  const ssize_t size = read(out_.read.get(), text.data(), text.size());
  text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
  return text;
}

void SliceTrial::end() noexcept {
  const pid_t group = std::exchange(pid_, -1);
  if (group <= 0) return;
  kill(-group, SIGKILL);
  waitpid(group, nullptr, 0);
}

}  // namespace sluice::controller
