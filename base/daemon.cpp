#include "base/daemon.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include "base/error.hpp"

namespace sluice::base {
namespace {

/// A daemon serves all programs of a session, so it has none of the limits that a shell gave the
/// first one. What is not allowed stays.
void lift_limits() {
  for (const auto resource : {RLIMIT_CPU, RLIMIT_FSIZE, RLIMIT_DATA, RLIMIT_AS, RLIMIT_NOFILE}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) != 0) continue;
    constexpr rlim_t kFiles = 1024;  // as is usual
    limit.rlim_cur = resource == RLIMIT_NOFILE
                         ? std::min(std::max(limit.rlim_cur, kFiles), limit.rlim_max)
                         : limit.rlim_max;
    setrlimit(resource, &limit);
  }
  setpriority(PRIO_PROCESS, 0, 0);
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof(all));
  sched_setaffinity(0, sizeof(all), &all);
}

/// Runs in the daemon between fork and exec, so it makes only async-signal-safe calls. Closes all
/// inherited descriptors: if the daemon kept a pipe of the user's shell open, `sluice exec ... |
/// cat` would not end.
[[noreturn]] void become_daemon(char* const* argv, char* const* envp, int log, int report,
                                bool out_too, int inherited) {
  setsid();
  lift_limits();
  signal(SIGHUP, SIG_DFL);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (chdir("/") != 0) _exit(1);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(out_too ? log : null, STDOUT_FILENO);
  if (log >= 0) dup2(log, STDERR_FILENO);
  // Descriptors 0, 1 and 2 stay open: dup2 cleared their flag. All others close at exec. The end of
  // `report` tells the parent that exec succeeded.
  syscall(SYS_close_range, 3U, ~0U, 4U /* CLOSE_RANGE_CLOEXEC */);
  if (inherited >= 0) fcntl(inherited, F_SETFD, 0);
  execve(argv[0], argv, envp);
  const int error = errno;
  const ssize_t ignored = write(report, &error, sizeof(error));
  _exit(ignored == sizeof(error) ? 1 : 2);
}

/// Forks twice and returns the grandchild's pid, which init will reap; a negative errno on failure.
pid_t spawn_detached(char* const* argv, char* const* envp, int log, int report, bool out_too,
                     int inherited) {
  std::array<int, 2> pid_pipe{};
  if (pipe2(pid_pipe.data(), O_CLOEXEC) != 0) return -errno;
  const pid_t child = fork();
  const int error = errno;
  if (child == 0) {
    pid_t daemon = fork();
    if (daemon == 0) become_daemon(argv, envp, log, report, out_too, inherited);
    if (daemon < 0) daemon = -errno;
    const ssize_t written = write(pid_pipe[1], &daemon, sizeof(daemon));
    _exit(written == sizeof(daemon) ? 0 : 1);
  }
  close(pid_pipe[1]);
  pid_t daemon = -error;
  if (child > 0 && read(pid_pipe[0], &daemon, sizeof(daemon)) != sizeof(daemon)) daemon = -ECHILD;
  close(pid_pipe[0]);
  if (child > 0) waitpid(child, nullptr, 0);
  return daemon;
}

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

}  // namespace

std::vector<std::string> environment_without(const std::vector<std::string>& prefixes) {
  std::vector<std::string> kept;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const bool goes = std::any_of(prefixes.begin(), prefixes.end(), [&](const std::string& prefix) {
      return text.starts_with(prefix);
    });
    if (!goes) kept.push_back(text);
  }
  return kept;
}

Daemon::Daemon(const DaemonOptions& options) {
  std::vector<std::string> args = options.args;
  std::vector<std::string> environment =
      options.environment.empty() ? environment_without({"CUDA_MPS_"}) : options.environment;
  const std::vector<char*> argv = pointers(args);
  const std::vector<char*> envp = pointers(environment);
  std::array<int, 2> report{};
  if (pipe2(report.data(), O_CLOEXEC) != 0) {
    throw RunError(std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  if (options.log >= 0) {
    log_ = fcntl(options.log, F_DUPFD_CLOEXEC, 0);
  } else if (!options.log_to_stderr) {
    log_ = memfd_create("sluice-daemon-log", MFD_CLOEXEC);
  }
  if (log_ >= 0) fcntl(log_, F_SETFL, O_APPEND);
  pid_ = spawn_detached(argv.data(), envp.data(), log_, report[1], options.log >= 0,
                        options.inherited_fd);
  close(report[1]);
  int error = pid_ < 0 ? -pid_ : 0;
  if (pid_ > 0) {
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0U));
    // End of file if exec succeeded, else an errno.
    const ssize_t got = read(report[0], &error, sizeof(error));
    if (got != sizeof(error)) error = 0;
  }
  close(report[0]);
  if (error != 0) throw RunError(args[0] + " cannot be run: " + std::strerror(error));
}

Daemon::~Daemon() {
  if (pidfd_ >= 0) close(pidfd_);
  if (log_ >= 0) close(log_);
}

bool Daemon::ended() const {
  // Some sandboxes have no pidfd. kill() may then see a zombie that their init never reaps.
  if (pidfd_ < 0) return kill(pid_, 0) != 0;
  pollfd wait{pidfd_, POLLIN, 0};
  return poll(&wait, 1, 0) > 0;
}

std::string Daemon::last_words() const {
  std::array<char, 4096> text{};
  const off_t size = log_ < 0 ? 0 : lseek(log_, 0, SEEK_END);
  const off_t start = std::max<off_t>(0, size - static_cast<off_t>(text.size()));
  const ssize_t got = pread(log_, text.data(), text.size(), start);
  std::string words(text.data(), static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words.substr(words.rfind('\n') + 1);
}

}  // namespace sluice::base
