// Where the programs of a machine find an MPS daemon: the folder of CUDA_MPS_PIPE_DIRECTORY.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "base/fd.hpp"

namespace sluice::simgpu {

// The names of NVIDIA's daemon. The pid file goes when the daemon ends; the socket stays.
class MpsFolder {
 public:
  explicit MpsFolder(std::string path) : path_(std::move(path)) {}
  // Empty without the variable. NVIDIA's default folder is not looked at: a daemon there belongs to
  // the real GPUs of the machine.
  static std::optional<MpsFolder> of_environment();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string control() const { return path_ + "/control"; }
  [[nodiscard]] std::string lock() const { return path_ + "/control_lock"; }
  [[nodiscard]] std::string pid_file() const { return path_ + "/nvidia-cuda-mps-control.pid"; }

  struct Daemon {
    pid_t pid = 0;
    std::uint64_t identity = 0;  // of all daemons of the machine; never 0
  };
  // Any process that lives, has its pid in the pid file, and has made `control`, whatever kind of
  // file that is.
  [[nodiscard]] std::optional<Daemon> daemon() const;

 private:
  std::string path_;
};

// The process as a descriptor that becomes readable when it ends; empty if there is none.
base::Fd open_process(pid_t pid);
// Also true for a process that has ended and that nobody has waited for yet.
bool has_ended(const base::Fd& process);

}  // namespace sluice::simgpu
