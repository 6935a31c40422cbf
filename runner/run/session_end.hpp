#pragma once
#include <string>
#include <vector>

namespace sluice::runner {

/// Waits until the files of a session are gone: its board, the controller's socket, and the
/// simulated GPU's socket. The controller and the simulated GPU exit after their last client.
/// Returns the files that remain after `limit_s`.
[[nodiscard]] std::vector<std::string> wait_for_session_end(const std::string& session,
                                                            double limit_s);

}  // namespace sluice::runner
