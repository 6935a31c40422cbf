#pragma once
#include <string>

#include "base/install.hpp"

namespace sluice::tools {

/// Makes sure that the session has a controller, and that the controller stays at least as long as
/// this process, which becomes the program and keeps its pid. Starts one as a daemon where there is
/// none; the daemon logs to our stderr if `log_to_stderr`, else to an unnamed file that
/// /proc/PID/fd/2 shows.
///
/// Never fails: a program must run whatever is wrong with the controller. Returns the warning that
/// says why the program runs ungated, or, from the one that starts a controller in a container,
/// that programs outside of it are not in the session; or nothing.
[[nodiscard]] std::string ensure_controller(const base::Install& install,
                                            const std::string& session,
                                            const std::string& log_level, bool log_to_stderr);

}  // namespace sluice::tools
