#include "runner/run/worker_process.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <deque>
#include <fstream>
#include <thread>

#include "base/error.hpp"
#include "runner/load_barrier.hpp"

namespace sluice::runner {
namespace {

std::array<base::Fd, 2> barrier_sockets() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    throw base::RunError(std::string("no socket: ") + std::strerror(errno));
  }
  return {base::Fd(ends[0]), base::Fd(ends[1])};
}

}  // namespace

WorkerProcess::WorkerProcess(std::string name, std::vector<std::string> args,
                             std::vector<std::string> environment, std::string output_file)
    : name_(std::move(name)), output_file_(std::move(output_file)) {
  const base::Fd output(
      open(output_file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
  if (output.get() < 0) throw base::RunError(output_file_ + ": " + std::strerror(errno));
  auto sockets = barrier_sockets();
  base::ChildOptions options;
  options.args = std::move(args);
  options.environment = std::move(environment);
  options.args.insert(options.args.end(), {"--barrier-fd", std::to_string(sockets[1].get())});
  options.stdout_fd = output.get();
  options.stderr_fd = output.get();
  options.inherited_fd = sockets[1].get();
  options.signal_when_we_die = SIGKILL;
  options.own_group = true;
  pid_ = base::start_child(options);
  barrier_ = std::move(sockets[0]);
}

WorkerProcess::~WorkerProcess() {
  // A moved-from worker has given its socket away.
  if (barrier_.get() >= 0) kill();
}

void WorkerProcess::look() {
  if (ended_) return;
  ready_ = ready_ || worker_is_ready(barrier_.get());
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return;
  ended_ = true;
  end_ = base::describe_end(status);
}

void WorkerProcess::release(std::uint64_t start_monotonic_ns) const {
  release_worker(barrier_.get(), start_monotonic_ns);
}

void WorkerProcess::kill() {
  if (ended_) return;
  ::kill(pid_, SIGKILL);
  ended_ = true;
  // A process in an uninterruptible system call outlives its SIGKILL.
  constexpr int kLimitMs = 10'000;
  for (int waited_ms = 0; waited_ms < kLimitMs; ++waited_ms) {
    if (waitpid(pid_, nullptr, WNOHANG) != 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::fprintf(stderr, "sluice run: %s (pid %d) still exists %d s after SIGKILL\n", name_.c_str(),
               static_cast<int>(pid_), kLimitMs / 1000);
}

std::vector<std::string> WorkerProcess::last_lines(std::size_t count) const {
  std::ifstream in(output_file_);
  std::deque<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    lines.push_back(line);
    if (lines.size() > count) lines.pop_front();
  }
  return {lines.begin(), lines.end()};
}

}  // namespace sluice::runner
