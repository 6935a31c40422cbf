#pragma once
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/fd.hpp"

namespace sluice::controller {

/// A process that is watched until it has ended. A pidfd where possible, because a pid may be
/// given to another process at any time.
class Process {
 public:
  /// The process at the other end of a connected unix socket.
  static Process peer_of(int socket, pid_t pid) noexcept;

  /// The process that has `pid` now.
  static Process with_pid(pid_t pid) noexcept;

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  /// False if the process is not visible from here (pid 0: another pid namespace) or is gone.
  [[nodiscard]] bool watchable() const noexcept { return static_cast<bool>(pidfd_); }

  /// Whether every thread of the process has ended and its files are closed. Never blocks.
  [[nodiscard]] bool ended() const noexcept;

 private:
  pid_t pid_ = 0;
  base::Fd pidfd_;
};

/// When the process with `pid` started, on CLOCK_MONOTONIC in ns, never too late. Nothing if there
/// is no such process. Reads /proc/PID/stat, which waits for nobody.
[[nodiscard]] std::optional<std::uint64_t> started_ns(pid_t pid);

/// Name of the process (/proc/PID/comm). Waits for nobody.
[[nodiscard]] std::string short_name(pid_t pid);

/// Command line with spaces between the arguments, at most `max_bytes`. May block: the kernel
/// takes the address-space lock of the process, which is held while it forks, for instance.
[[nodiscard]] std::string command_line(pid_t pid, std::size_t max_bytes);

/// `text` for a log or a label: valid UTF-8 of at most `max_bytes`, control characters replaced.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes);

}  // namespace sluice::controller
