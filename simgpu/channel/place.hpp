// The place where programs find the process of their simulated GPU.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "base/fd.hpp"

namespace sluice::simgpu {

// The session in SLUICE_SESSION, valid or not.
std::string session_name();

// A folder with the socket of one GPU process. Without SLUICE_SIMGPU_DIR, that is the runtime
// folder, and the GPU belongs to one session of one user. With the variable, it is the folder that
// the variable names, and the GPU belongs to all sessions of all users that may enter the folder.
class Place {
 public:
  static Place of_environment();

  // Why no GPU process can be here, as a line for people. Empty if nothing is wrong.
  [[nodiscard]] const std::string& fault() const { return fault_; }
  [[nodiscard]] bool is_shared() const { return shared_; }
  [[nodiscard]] bool admits(uid_t user) const;

  // The path for the socket of a new GPU process. In a shared folder it is a new path at each call,
  // so that no file of another user is in the way.
  [[nodiscard]] std::string new_socket() const;
  // The paths at which a GPU process may answer. At most one does.
  [[nodiscard]] std::vector<std::string> sockets() const;

  // Waits until no other process starts or ends a GPU process here, until the returned descriptor
  // is closed. Empty if the folder cannot be used.
  [[nodiscard]] base::Fd lock() const;
  // The same, but does not wait for another user: nothing if somebody else has a shared folder's
  // lock.
  [[nodiscard]] std::optional<base::Fd> lock_to_end() const;

  // Removes sockets that were never finished, because their starter was killed. Under lock().
  void remove_unfinished() const;
  // Removes the runtime folder if it is empty. A shared folder stays, because a user made it.
  void remove_folder_if_empty() const;

 private:
  std::string folder_;
  std::string socket_;  // empty in a shared folder
  std::string fault_;
  bool shared_ = false;
};

// What a socket's path has at its end until it is finished.
inline constexpr const char* kUnfinished = ".new";

}  // namespace sluice::simgpu
