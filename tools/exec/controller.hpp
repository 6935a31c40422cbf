#pragma once
#include <string>

#include "base/install.hpp"

namespace sluice::tools {

/// Sees to it that the session has a controller, and that this one lives at least as long as this
/// process (which becomes the program, so its pid counts). Starts one as a daemon where there is
/// none; a daemon's log goes where ours goes if `log_to_stderr`, else to an unnamed file that
/// /proc/PID/fd/2 shows.
///
/// Throws base::RunError if none can be started. Returns a warning, or nothing, where one runs but
/// does not answer, or cannot watch this process: the program then runs ungated.
std::string ensure_controller(const base::Install& install, const std::string& session,
                              const std::string& log_level, bool log_to_stderr);

}  // namespace sluice::tools
