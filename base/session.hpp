#pragma once
#include <string>
#include <string_view>

/// Names of sessions, and the folder of their sockets.
namespace sluice::base {

inline constexpr std::string_view kDefaultSession = "default";

/// Whether `name` can name a session: 1 to 32 of A-Z a-z 0-9 _ - and inner dots.
[[nodiscard]] bool valid_session_name(std::string_view name) noexcept;

/// Folder of the session's sockets: $XDG_RUNTIME_DIR/sluice, else /tmp/sluice-<uid>.
[[nodiscard]] std::string runtime_dir();

/// Makes runtime_dir() with mode 0700 where it is missing. Throws std::runtime_error, one line,
/// if it cannot be made, is not a folder of this user, or is open to others.
void ensure_runtime_dir();

/// Removes runtime_dir() if it is empty. Quiet.
void remove_runtime_dir_if_empty() noexcept;

}  // namespace sluice::base
