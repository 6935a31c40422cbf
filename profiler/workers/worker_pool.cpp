#include "profiler/workers/worker_pool.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <optional>
#include <thread>

#include "base/child.hpp"
#include "base/clock.hpp"
#include "base/fd.hpp"

namespace sluice::profiler {
namespace {

constexpr double kNsPerSecond = 1e9;

/// False if nobody reads any more.
bool write_all(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t wrote = write(fd, text.data() + done, text.size() - done);
    if (wrote < 0 && errno != EINTR) return false;
    if (wrote > 0) done += static_cast<std::size_t>(wrote);
  }
  return true;
}

/// The wait status of a child that is about to end; nothing if it does not within a second.
std::optional<int> ends(pid_t pid) {
  constexpr int kTries = 100;
  int status = 0;
  for (int i = 0; i < kTries; ++i) {
    if (waitpid(pid, &status, WNOHANG) == pid) return status;
    usleep(10'000);
  }
  return std::nullopt;
}

}  // namespace

std::size_t processors() { return std::max(1U, std::thread::hardware_concurrency()); }

struct WorkerPool::Worker {
  std::vector<std::string> command;
  pid_t pid = -1;  ///< -1: to be started by the next request.
  base::Fd in;
  base::Fd out;
  std::string unread;
  OnAnswer done;  ///< Empty: idle.
  std::uint64_t deadline_ns = 0;
};

WorkerPool::WorkerPool(std::vector<std::vector<std::string>> commands, double limit_s)
    : limit_s_(limit_s) {
  // A write to a child that has died must fail, not end this process.
  signal(SIGPIPE, SIG_IGN);
  for (auto& command : commands) {
    workers_.push_back(std::make_unique<Worker>());
    workers_.back()->command = std::move(command);
    start(*workers_.back());
  }
}

WorkerPool::~WorkerPool() {
  // An idle child ends in an orderly way when nobody can ask it any more. A busy one is killed.
  for (const auto& worker : workers_) worker->in.reset();
  for (const auto& worker : workers_) {
    if (worker->pid >= 0 && (worker->done || !ends(worker->pid))) stop(*worker);
  }
}

std::size_t WorkerPool::busy() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      workers_, [](const auto& worker) { return static_cast<bool>(worker->done); }));
}

bool WorkerPool::busy(std::size_t worker) const {
  return static_cast<bool>(workers_[worker]->done);
}

std::size_t WorkerPool::idle() const {
  const auto found =
      std::ranges::find_if(workers_, [](const auto& worker) { return !worker->done; });
  return static_cast<std::size_t>(found - workers_.begin());
}

void WorkerPool::start(Worker& worker) {
  base::Pipe in;
  base::Pipe out;
  base::ChildOptions options;
  options.args = worker.command;
  options.stdin_fd = in.read.get();
  options.stdout_fd = out.write.get();
  options.signal_when_we_die = SIGKILL;
  worker.pid = base::start_child(options);
  worker.in = std::move(in.write);
  worker.out = std::move(out.read);
  // A callback may have taken an answer that poll() reported before.
  fcntl(worker.out.get(), F_SETFL, O_NONBLOCK);
  worker.unread.clear();
}

int WorkerPool::stop(Worker& worker) {
  if (worker.pid < 0) return 0;
  worker.in.reset();
  kill(worker.pid, SIGKILL);
  int status = 0;
  while (waitpid(worker.pid, &status, 0) < 0 && errno == EINTR) {
  }
  worker.out.reset();
  worker.pid = -1;
  return status;
}

void WorkerPool::restart(std::size_t worker) { stop(*workers_[worker]); }

void WorkerPool::submit(std::size_t worker, const std::string& request, OnAnswer done) {
  Worker& to = *workers_[worker];
  if (to.pid < 0) start(to);
  to.done = std::move(done);
  to.deadline_ns =
      base::monotonic_ns() + static_cast<std::uint64_t>(std::llround(limit_s_ * kNsPerSecond));
  // If the child has died, its output has an end, and wait_for_answer() reports that.
  (void)write_all(to.in.get(), request + '\n');
}

void WorkerPool::answer(Worker& worker, WorkerAnswer answer) {
  const OnAnswer done = std::exchange(worker.done, nullptr);
  if (done) done(answer);
}

void WorkerPool::read_from(Worker& worker) {
  std::array<char, 1 << 16> chunk;
  const ssize_t got = read(worker.out.get(), chunk.data(), chunk.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (got <= 0) {
    // The child's own end is more telling than the signal of stop().
    const auto ended = ends(worker.pid);
    const int status = ended ? *ended : stop(worker);
    // A child that cannot start says why. Another one, which nobody needs yet, would say it again.
    worker.pid = -1;
    answer(worker, {WorkerAnswer::How::kDied, base::describe_end(status)});
    return;
  }
  worker.unread.append(chunk.data(), static_cast<std::size_t>(got));
  const std::size_t end = worker.unread.find('\n');
  if (end == std::string::npos) return;
  std::string line = worker.unread.substr(0, end);
  worker.unread.erase(0, end + 1);
  answer(worker, {WorkerAnswer::How::kAnswered, std::move(line)});
}

bool wait_for_answer(const std::vector<WorkerPool*>& pools, double limit_s) {
  const std::uint64_t end =
      base::monotonic_ns() + static_cast<std::uint64_t>(std::llround(limit_s * kNsPerSecond));
  while (true) {
    std::vector<pollfd> files;
    std::vector<std::pair<WorkerPool*, WorkerPool::Worker*>> busy;
    std::uint64_t until = end;
    for (WorkerPool* pool : pools) {
      for (const auto& worker : pool->workers_) {
        if (!worker->done) continue;
        files.push_back({worker->out.get(), POLLIN, 0});
        busy.emplace_back(pool, worker.get());
        until = std::min(until, worker->deadline_ns);
      }
    }
    if (busy.empty()) return false;
    std::uint64_t now = base::monotonic_ns();
    const std::uint64_t left_ms = until > now ? (until - now) / 1'000'000 + 1 : 0;
    if (poll(files.data(), files.size(), static_cast<int>(std::min<std::uint64_t>(left_ms, 1000))) <
            0 &&
        errno != EINTR) {
      throw base::RunError("poll failed");
    }
    now = base::monotonic_ns();
    bool any = false;
    for (std::size_t i = 0; i < busy.size(); ++i) {
      auto [pool, worker] = busy[i];
      if (!worker->done) {
        any = true;
        continue;
      }
      if (files[i].revents != 0) {
        pool->read_from(*worker);
      } else if (now >= worker->deadline_ns) {
        WorkerPool::stop(*worker);
        pool->answer(*worker, {WorkerAnswer::How::kTimeout, ""});
      }
      any = any || !worker->done;
    }
    if (any) return true;
    if (now >= end) return false;
  }
}

WorkerAnswer ask(WorkerPool& pool, std::size_t worker, const std::string& request) {
  WorkerAnswer answer;
  pool.submit(worker, request, [&](const WorkerAnswer& given) { answer = given; });
  while (pool.busy(worker)) (void)wait_for_answer({&pool}, 1);
  return answer;
}

}  // namespace sluice::profiler
