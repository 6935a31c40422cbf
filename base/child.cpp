#include "base/child.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "base/error.hpp"

namespace sluice::base {
namespace {

std::vector<char*> pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  for (std::string& text : strings) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

std::vector<std::string> merged_environment(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    const bool replaced = std::any_of(changes.begin(), changes.end(), [&](const auto& change) {
      return change.compare(0, name.size(), name) == 0;
    });
    if (!replaced) all.push_back(text);
  }
  return all;
}

/// Signals are blocked while it lives: a handler of ours must not run in a child that shares our
/// memory.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

/// A process may have been started with SIGCHLD ignored. The kernel would then keep no exit code,
/// and each child would look as if it had ended well.
void keep_exit_codes() {
  struct sigaction action {};
  if (sigaction(SIGCHLD, nullptr, &action) == 0 && action.sa_handler == SIG_IGN) {
    signal(SIGCHLD, SIG_DFL);
  }
}

/// As exec will do. The handlers of the parent stay: the child has a table of its own.
void forget_handlers() {
  for (int signal = 1; signal < NSIG; ++signal) {
    struct sigaction action {};
    if (sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN) continue;
    action.sa_handler = SIG_DFL;
    action.sa_flags = 0;
    sigaction(signal, &action, nullptr);
  }
}

/// Runs in the child between vfork and exec, in the memory of the parent, of which it changes
/// nothing. Only async-signal-safe calls are allowed.
[[noreturn]] void become(char* const* argv, char* const* envp, const ChildOptions& options,
                         pid_t parent) {
  if (options.own_group) setpgid(0, 0);
  if (options.signal_when_we_die != 0) {
    prctl(PR_SET_PDEATHSIG, static_cast<unsigned long>(options.signal_when_we_die));
    // If the parent died before the line above, no signal will come.
    if (getppid() != parent) _exit(127);
  }
  forget_handlers();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (options.stdin_fd >= 0) dup2(options.stdin_fd, STDIN_FILENO);
  if (options.stdout_fd >= 0) dup2(options.stdout_fd, STDOUT_FILENO);
  if (options.stderr_fd >= 0) dup2(options.stderr_fd, STDERR_FILENO);
  // A library may open sockets that exec leaves open: the child would keep the port and the
  // connections of its parent. Kernels before 5.11 do not have this flag.
  close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  if (options.inherited_fd >= 0) fcntl(options.inherited_fd, F_SETFD, 0);
  const bool there = options.folder.empty() || chdir(options.folder.c_str()) == 0;
  if (there) execve(argv[0], argv, envp);
  const char* why = std::strerror(errno);
  for (const char* part : {static_cast<const char*>(argv[0]), " cannot be run: ", why, "\n"}) {
    if (write(STDERR_FILENO, part, std::strlen(part)) < 0) break;
  }
  _exit(127);
}

int wait_for(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return exit_code(status);
}

/// Reads two pipes to their ends, each as soon as it has data.
void drain(int out_fd, std::string& out, int err_fd, std::string& err) {
  std::array<pollfd, 2> pipes{pollfd{out_fd, POLLIN, 0}, pollfd{err_fd, POLLIN, 0}};
  const std::array<std::string*, 2> texts{&out, &err};
  std::array<char, 4096> chunk{};
  while (pipes[0].fd >= 0 || pipes[1].fd >= 0) {
    if (poll(pipes.data(), pipes.size(), -1) < 0 && errno != EINTR) return;
    for (std::size_t i = 0; i < pipes.size(); ++i) {
      if (pipes[i].fd < 0 || pipes[i].revents == 0) continue;
      const ssize_t got = read(pipes[i].fd, chunk.data(), chunk.size());
      if (got > 0) {
        texts[i]->append(chunk.data(), static_cast<std::size_t>(got));
      } else if (got == 0 || errno != EINTR) {
        pipes[i].fd = -1;
      }
    }
  }
}

}  // namespace

pid_t start_child(const ChildOptions& options) {
  std::vector<std::string> args = options.args;
  std::vector<std::string> environment = merged_environment(options.environment);
  const auto argv = pointers(args);
  const auto envp = pointers(environment);
  const pid_t parent = getpid();
  keep_exit_codes();
  const NoSignals until_exec;
  // fork would copy the page tables of a server with gigabytes of memory, and each page that it
  // then writes to would be copied, too.
  const pid_t pid = vfork();
  if (pid == 0) become(argv.data(), envp.data(), options, parent);
  if (pid < 0) throw RunError(std::string("cannot start a process: ") + std::strerror(errno));
  return pid;
}

int exit_code(int wait_status) {
  return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

std::string describe_end(int wait_status) {
  if (WIFEXITED(wait_status)) return "exited with " + std::to_string(WEXITSTATUS(wait_status));
  const int signal = WTERMSIG(wait_status);
  return "was killed by signal " + std::to_string(signal) + " (" + strsignal(signal) + ")";
}

Captured capture(std::vector<std::string> args, std::vector<std::string> environment) {
  Pipe out;
  Pipe err;
  ChildOptions options;
  options.args = std::move(args);
  options.environment = std::move(environment);
  options.stdout_fd = out.write.get();
  options.stderr_fd = err.write.get();
  const pid_t pid = start_child(options);
  out.write.reset();
  err.write.reset();
  Captured captured;
  drain(out.read.get(), captured.out, err.read.get(), captured.err);
  captured.exit_code = wait_for(pid);
  return captured;
}

int run_to_end(std::vector<std::string> args, std::vector<std::string> environment) {
  ChildOptions options;
  options.args = std::move(args);
  options.environment = std::move(environment);
  return wait_for(start_child(options));
}

}  // namespace sluice::base
