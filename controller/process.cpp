#include "controller/process.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <sstream>

#include "base/clock.hpp"

namespace sluice::controller {
namespace {

/// SO_PEERPIDFD of Linux 6.5; the headers of Debian 12 do not have it.
constexpr int kSoPeerPidfd = 77;

int pidfd_open(pid_t pid) noexcept {
  return pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1;
}

}  // namespace

ClientProcess ClientProcess::peer_of(int socket, pid_t pid) noexcept {
  ClientProcess process;
  process.pid_ = pid;
  int fd = -1;
  socklen_t size = sizeof(fd);
  if (pid > 0 && getsockopt(socket, SOL_SOCKET, kSoPeerPidfd, &fd, &size) == 0) {
    process.pidfd_ = base::Fd(fd);
  } else if (errno == ENOPROTOOPT) {  // before Linux 6.5. Any other error: the peer is gone.
    process.pidfd_ = base::Fd(pidfd_open(pid));
  }
  return process;
}

ClientProcess ClientProcess::with_pid(pid_t pid) noexcept {
  ClientProcess process;
  process.pid_ = pid;
  process.pidfd_ = base::Fd(pidfd_open(pid));
  return process;
}

bool ClientProcess::ended() const noexcept {
  if (!pidfd_) return pid_ <= 0 || (kill(pid_, 0) != 0 && errno == ESRCH);
  pollfd ready{pidfd_.get(), POLLIN, 0};
  return poll(&ready, 1, 0) == 1;
}

std::optional<std::uint64_t> started_ns(pid_t pid) {
  const std::string stat = base::read_proc(pid, "stat", 1024);
  // The name in parentheses may contain spaces and parentheses, so count the fields after its end.
  // The first of them is field 3. Field 22 is the start time in ticks of CLOCK_BOOTTIME.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string field;
  for (int number = 3; number < 22; ++number) fields >> field;
  std::uint64_t ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  const auto ticks_per_second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  const std::uint64_t boottime = ticks * (1'000'000'000U / ticks_per_second);
  const std::uint64_t monotonic =
      base::monotonic_ns();  // first, so that the difference is not negative
  const std::uint64_t suspended = base::clock_ns(CLOCK_BOOTTIME) - monotonic;
  return boottime > suspended ? boottime - suspended : 0;
}

std::optional<uid_t> user_of(pid_t pid) {
  // Not the owner of /proc/PID, which is root if the process may not be traced.
  const std::string status = base::read_proc(pid, "status", 4096);
  const std::size_t line = status.find("\nUid:");
  if (line == std::string::npos) return std::nullopt;
  std::istringstream fields(status.substr(line + 5));
  uid_t real = 0;
  uid_t effective = 0;
  if (!(fields >> real >> effective)) return std::nullopt;
  return effective;
}

std::string all_cgroups_of(const ClientProcess& process) {
  std::string all = base::read_proc(process.pid(), "cgroup", 8192);
  // Another process may have the pid by now.
  return process.ended() ? std::string() : all;
}

std::string cgroup_of(const ClientProcess& process) {
  std::istringstream lines(all_cgroups_of(process));
  std::string found;
  for (std::string line; std::getline(lines, line);) {
    const std::size_t name = line.find(':') + 1;
    const std::size_t path = line.find(':', name) + 1;
    if (name == 0 || path == 0) continue;
    const std::string hierarchy = line.substr(name, path - 1 - name);
    if (hierarchy.empty() || (hierarchy == "name=systemd" && found.empty())) {
      found = line.substr(path);
    }
  }
  return found;
}

}  // namespace sluice::controller
