#pragma once
#include <string>
#include <vector>

namespace sluice::runner {

/// Removes the board and the socket of a session whose controller was killed, unless a client still
/// uses them. Its last client would do that, but killed workers cannot.
void remove_what_a_killed_controller_left(const std::string& session) noexcept;

/// Waits until the files of a session are gone: its board, the controller's socket, and the
/// simulated GPU's socket. The controller and the simulated GPU exit after their last client. What
/// a killed controller left is removed.
/// Returns the files that remain after `limit_s`.
[[nodiscard]] std::vector<std::string> wait_for_session_end(const std::string& session,
                                                            double limit_s);

}  // namespace sluice::runner
