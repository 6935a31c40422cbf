#pragma once
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace sluice::base {

/// A private NVIDIA MPS daemon: its clients run on the GPU at the same time instead of in turns. It
/// has its own pipes, so it does not meet another MPS daemon of the machine. It ends with this
/// object or this process, even after a SIGKILL.
class MpsDaemon {
 public:
  /// Starts the daemon with its logs in `log_folder`, and waits until it accepts clients. `program`
  /// is the path of nvidia-cuda-mps-control. Throws RunError with the daemon's last line.
  MpsDaemon(const std::string& program, const std::string& log_folder);
  /// Ends the daemon and its server within 10 s. The clients should have ended before.
  ~MpsDaemon();
  MpsDaemon(const MpsDaemon&) = delete;
  MpsDaemon& operator=(const MpsDaemon&) = delete;

  /// The environment variables of a client. MPS has two priorities: normal and below normal.
  [[nodiscard]] std::vector<std::string> environment(bool below_normal) const;

 private:
  void wait_until_ready();
  void stop() noexcept;

  std::string pipes_;
  std::string log_folder_;
  pid_t pid_ = -1;
};

/// The path of nvidia-cuda-mps-control. Throws UsageError if it is not in PATH.
[[nodiscard]] std::string find_mps_control();

/// Whether the process is an MPS daemon, of any user. False if that is not visible.
[[nodiscard]] bool is_mps_daemon(pid_t pid);

/// The variables that a daemon and its clients share.
[[nodiscard]] std::vector<std::string> mps_places(const std::string& pipes,
                                                  const std::string& logs);

/// Whether the daemon with this pipe folder has begun to accept clients.
[[nodiscard]] bool accepts_mps_clients(const std::string& pipes);

/// Waits at most 10 s for that. Throws RunError with the last line of the daemon if it ends before.
void wait_for_mps(const std::string& pipes, const std::function<bool()>& ended,
                  const std::function<std::string()>& last_line);

}  // namespace sluice::base
