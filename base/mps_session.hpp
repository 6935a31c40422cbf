#pragma once
#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/fd.hpp"

/// The MPS daemon of a session. Its programs find it through CUDA_MPS_PIPE_DIRECTORY.
///
/// All that exists of it is in one folder, `<runtime_dir()>/<session>.mps`: `1` is the pipe folder
/// of the first daemon, `2` that of the next one if the first was killed, and so on. Whoever starts
/// or ends something holds the folder's lock. No file says who lives: a process belongs to a daemon
/// if its environment has the pipe folder, so no pid of an earlier process can be mistaken for it.
namespace sluice::base {

/// The variable by which a process belongs to an MPS daemon.
inline constexpr const char* kMpsPipes = "CUDA_MPS_PIPE_DIRECTORY";

struct MpsProcess {
  enum class Kind { kControl, kServer, kUser };
  pid_t pid = 0;
  std::uint64_t start = 0;  ///< start_time_of()
  Kind kind = Kind::kUser;
  std::string pipes;
};

/// When the process started, in ticks since the machine started; 0 if there is no such process, or
/// it has ended and only waits for its parent.
[[nodiscard]] std::uint64_t start_time_of(pid_t pid);

/// The processes of this user, other than this one, whose pipe folder is below `folder`.
[[nodiscard]] std::vector<MpsProcess> mps_processes(const std::string& folder);

/// Sends the signal unless the process is another one than it was when it was found.
void signal_process(const MpsProcess& process, int signal) noexcept;

/// The folder of a session's MPS daemon.
class MpsFolder {
 public:
  explicit MpsFolder(const std::string& session);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] bool exists() const;
  /// The pipe folder of daemon `number`.
  [[nodiscard]] std::string pipes(int number) const { return path_ + "/" + std::to_string(number); }
  [[nodiscard]] std::string logs(int number) const { return pipes(number) + ".log"; }
  /// The daemons that have a pipe folder, or had one when `processes` were started, in order.
  [[nodiscard]] std::vector<int> numbers(const std::vector<MpsProcess>& processes) const;

  /// Makes the folder one of this process's pid and user namespace. Returns false if it is of
  /// another one, whose processes cannot be seen here, and a keeper or a daemon lives there. Needs
  /// the lock.
  [[nodiscard]] bool claim() const;

  /// The lock of the folder, until the descriptor is closed. Empty if the folder is missing and
  /// not `make`. Throws RunError, also if another process has it for longer than `patience`.
  [[nodiscard]] Fd lock(bool make, std::chrono::seconds patience = std::chrono::seconds(30)) const;

  /// The same without waiting. Empty: somebody has it, or there is no folder.
  [[nodiscard]] Fd try_lock() const noexcept;

  /// The right to be the session's keeper, until the descriptor is closed. Empty: another process
  /// has it, or there is no folder.
  [[nodiscard]] Fd become_keeper() const;

  /// Notes that this process uses daemon `number`, from now until it ends. It need not have the
  /// variable yet.
  void note_user(int number) const;
  /// Processes that noted it and live.
  [[nodiscard]] std::vector<pid_t> noted_users(int number) const;

  /// For whoever starts daemon `number`, which inherits the descriptor: while a process has it
  /// open, also one that is only about to become the daemon and has no environment yet, is_held().
  [[nodiscard]] Fd hold(int number) const;
  [[nodiscard]] bool is_held(int number) const noexcept;

  /// Removes what daemon `number` has left.
  void remove(int number) const noexcept;
  /// Removes the folder.
  void remove_all() const noexcept;

 private:
  std::string path_;
};

}  // namespace sluice::base
