#pragma once
#include <string>
#include <string_view>

/// Session names, and the folder of the session sockets.
namespace sluice::base {

inline constexpr std::string_view kDefaultSession = "default";

/// Whether `name` is a valid session name: 1 to 32 of A-Z a-z 0-9 _ - and inner dots.
[[nodiscard]] bool valid_session_name(std::string_view name) noexcept;

/// The folder of the session sockets: $XDG_RUNTIME_DIR/sluice, else /tmp/sluice-<uid>.
[[nodiscard]] std::string runtime_dir();

/// Creates runtime_dir() with mode 0700 if it is missing. Throws std::runtime_error with one line
/// if the folder cannot be created, belongs to another user, or is open to others.
void ensure_runtime_dir();

/// Removes runtime_dir() if it is empty. Reports no errors.
void remove_runtime_dir_if_empty() noexcept;

}  // namespace sluice::base
