#include "simgpu/channel/mps_folder.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

namespace sluice::simgpu {

base::Fd open_process(pid_t pid) {
  return base::Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
}

bool has_ended(const base::Fd& process) {
  pollfd polled{process.get(), POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

std::optional<MpsFolder> MpsFolder::of_environment() {
  const char* path = std::getenv("CUDA_MPS_PIPE_DIRECTORY");
  if (path == nullptr || *path == 0) return std::nullopt;
  return MpsFolder(path);
}

std::optional<MpsFolder::Daemon> MpsFolder::daemon() const {
  struct stat found {};
  Daemon daemon;
  std::ifstream file(pid_file());
  if (stat(control().c_str(), &found) != 0 || !(file >> daemon.pid) || daemon.pid <= 0) {
    return std::nullopt;
  }
  const base::Fd process = open_process(daemon.pid);
  if (!process || has_ended(process)) return std::nullopt;
  // The pid differs from that of a daemon that had the folder before.
  daemon.identity = (static_cast<std::uint64_t>(found.st_ino) << 32U) ^
                    (static_cast<std::uint64_t>(found.st_dev) << 24U) ^
                    static_cast<std::uint64_t>(daemon.pid);
  if (daemon.identity == 0) daemon.identity = 1;
  return daemon;
}

}  // namespace sluice::simgpu
