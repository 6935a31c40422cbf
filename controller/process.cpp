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

/// The fields of /proc/PID/stat from field 3 on. Nothing if there is no such process.
std::optional<std::istringstream> fields_of(pid_t pid) {
  const std::string stat = base::read_proc(pid, "stat", 1024);
  // The name in parentheses may contain spaces and parentheses, so count the fields after its end.
  const std::size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  return std::istringstream(stat.substr(name_end + 1));
}

/// Whether the main thread ends or has ended. /proc/PID/cgroup then has the root in each hierarchy
/// of cgroup v1, also while other threads of the process run on.
bool main_thread_exits(pid_t pid) {
  constexpr unsigned kExiting = 0x4;  // PF_EXITING of the kernel, in field 9
  auto fields = fields_of(pid);
  if (!fields) return true;
  std::string field;
  for (int number = 3; number < 9; ++number) *fields >> field;
  unsigned flags = 0;
  return !(*fields >> flags) || (flags & kExiting) != 0;
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
  auto fields = fields_of(pid);
  if (!fields) return std::nullopt;
  std::string field;
  // Field 22 is the start time in ticks of CLOCK_BOOTTIME.
  for (int number = 3; number < 22; ++number) *fields >> field;
  std::uint64_t ticks = 0;
  if (!(*fields >> ticks)) return std::nullopt;
  const auto ticks_per_second = static_cast<std::uint64_t>(sysconf(_SC_CLK_TCK));
  const std::uint64_t boottime = ticks * (1'000'000'000U / ticks_per_second);
  const std::uint64_t monotonic =
      base::monotonic_ns();  // first, so that the difference is not negative
  const std::uint64_t suspended = base::clock_ns(CLOCK_BOOTTIME) - monotonic;
  return boottime > suspended ? boottime - suspended : 0;
}

bool has_our_clock(pid_t pid) {
  // The first line, "monotonic SECONDS NANOSECONDS". None before Linux 5.6, or of a process that is
  // ending.
  const auto offset = [](pid_t of) {
    const std::string all = base::read_proc(of, "timens_offsets", 256);
    return all.substr(0, all.find('\n'));
  };
  const std::string theirs = offset(pid);
  return theirs.empty() || theirs == offset(getpid());
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

std::optional<std::string> all_cgroups_of(const ClientProcess& process) {
  constexpr std::size_t kMostBytes = 8192;
  if (!process.watchable()) return std::nullopt;
  std::string all = base::read_proc(process.pid(), "cgroup", kMostBytes + 1);
  const bool whole = !all.empty() && all.size() <= kMostBytes && all.back() == '\n';
  // Last, because another process may have the pid by now.
  if (!whole || main_thread_exits(process.pid()) || process.ended()) return std::nullopt;
  return all;
}

std::optional<std::string> cgroup_of(const ClientProcess& process) {
  const std::optional<std::string> all = all_cgroups_of(process);
  if (!all) return std::nullopt;
  std::istringstream lines(*all);
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
