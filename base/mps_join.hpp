#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "base/install.hpp"

namespace sluice::base {

/// How this process came to the MPS daemon of a session.
struct MpsJoin {
  std::string pipes;     ///< The pipe folder, for CUDA_MPS_PIPE_DIRECTORY.
  bool started = false;  ///< The daemon was started here.
  /// Programs of the session under an earlier daemon that was killed: they and this process take
  /// turns on the GPU.
  std::vector<pid_t> apart;
};

/// Joins the MPS daemon of the session, and starts it, with its keeper, if there is none. From then
/// on the daemon lives at least as long as this process. `control` is the path of
/// nvidia-cuda-mps-control. Throws RunError with the daemon's last line.
[[nodiscard]] MpsJoin join_mps(const Install& install, const std::string& session,
                               const std::string& control);

/// Starts a keeper for what there is of the session's MPS daemon, if the keeper was killed. Does
/// nothing while another process starts or ends something: that one sees to it. Throws RunError.
void restore_mps_keeper(const Install& install, const std::string& session);

/// For a controller that leaves: starts a keeper for what there is of the session's MPS daemon,
/// even if there seems to be one, which may have been killed a moment ago. A second keeper leaves
/// by itself. Throws RunError.
void leave_mps_to_keeper(const Install& install, const std::string& session);

/// One line about MPS daemons of this machine that are not the session's: with the session's
/// programs, theirs take turns. Empty: none is visible.
[[nodiscard]] std::string other_mps_daemons(const std::string& session);

}  // namespace sluice::base
