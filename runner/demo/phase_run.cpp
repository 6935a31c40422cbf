#include "runner/demo/phase_run.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/child.hpp"
#include "base/error.hpp"

namespace sluice::runner {

int run_phase(const base::Install& install, const std::string& gpu, const std::string& folder,
              const base::SignalFd& signals) {
  const std::string report = folder + "/output.txt";
  const base::Fd out(open(report.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (out.get() < 0) throw base::RunError(report + ": cannot be made: " + std::strerror(errno));
  base::ChildOptions options;
  options.args = {install.program("sluice-run"), "--gpu", gpu, "experiment.json"};
  options.folder = folder;
  options.stdout_fd = out.get();
  // Asked, not killed, so that it can end its workers in order.
  options.signal_when_we_die = SIGTERM;
  // Ctrl-C comes to us alone, and from us to it once.
  options.own_group = true;
  const pid_t pid = base::start_child(options);
  for (;;) {
    int status = 0;
    if (waitpid(pid, &status, WNOHANG) == pid) {
      return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    pollfd source{signals.fd(), POLLIN, 0};
    poll(&source, 1, 1000);
    for (int signal = signals.next().signal; signal != 0; signal = signals.next().signal) {
      if (signal != SIGCHLD) kill(pid, signal);
    }
  }
}

}  // namespace sluice::runner
