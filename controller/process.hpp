#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.hpp"
#include "base/processes.hpp"

namespace sluice::controller {

/// A process that the controller watches until its end, through a pidfd where possible: the kernel
/// may give the pid of an ended process to another one.
class ClientProcess {
 public:
  /// The process at the other end of a connected unix socket.
  static ClientProcess peer_of(int socket, pid_t pid) noexcept;

  /// The process that currently has `pid`.
  static ClientProcess with_pid(pid_t pid) noexcept;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  /// False if the process is gone, or is not visible here (pid 0: another pid namespace).
  [[nodiscard]] bool watchable() const noexcept { return static_cast<bool>(pidfd_); }

  /// Whether every thread of the process has ended and its files are closed. Never blocks. True
  /// for pid 0.
  [[nodiscard]] bool ended() const noexcept;

 private:
  pid_t pid_ = 0;
  base::Fd pidfd_;
};

/// Start time of the process with `pid`, on CLOCK_MONOTONIC in ns, rounded down. Nothing if there
/// is no such process. Never blocks: /proc/PID/stat takes no lock of the process.
[[nodiscard]] std::optional<std::uint64_t> started_ns(pid_t pid);

/// Whether CLOCK_MONOTONIC of the process is that of this one. False in a time namespace with
/// another offset. Never blocks.
[[nodiscard]] bool has_our_clock(pid_t pid);

/// The effective user of the process with `pid`. Nothing if there is no such process. Never blocks.
[[nodiscard]] std::optional<uid_t> user_of(pid_t pid);

/// All cgroups of the process, as /proc/PID/cgroup has them. Nothing if they are not known for
/// sure: they cannot be read, are longer than 8 KiB, or the process or its main thread has ended.
[[nodiscard]] std::optional<std::string> all_cgroups_of(const ClientProcess& process);

/// The path of the process in the hierarchy of cgroup v2, else in that of systemd. Empty if it has
/// none. Nothing if all_cgroups_of() gives nothing.
[[nodiscard]] std::optional<std::string> cgroup_of(const ClientProcess& process);

using base::command_line;
using base::printable;
using base::short_name;

}  // namespace sluice::controller
