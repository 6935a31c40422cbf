#pragma once
#include <string>
#include <vector>

namespace sluice::runner {

/// Waits until nothing of a session is left: board, controller's socket, simulated GPU's socket.
/// Its controller and GPU leave by themselves after their last client. Returns what is still there
/// after `limit_s`.
[[nodiscard]] std::vector<std::string> wait_for_session_end(const std::string& session,
                                                            double limit_s);

}  // namespace sluice::runner
