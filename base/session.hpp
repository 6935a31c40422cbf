#pragma once
#include <sys/types.h>

#include <string>
#include <string_view>

#include "base/fd.hpp"

/// Names of sessions, whose sessions this process sees, and the folder of their sockets.
namespace sluice::base {

inline constexpr std::string_view kDefaultSession = "default";

/// Whether `name` is a valid session name: 1 to 32 of A-Z a-z 0-9 _ - and inner dots.
[[nodiscard]] bool valid_session_name(std::string_view name) noexcept;

/// Whether this process is in a user namespace, as in a rootless container.
[[nodiscard]] bool in_user_namespace() noexcept;

/// The uid in the names of this user's sessions. In a user namespace the kernel shows another uid
/// than on the host, also for the owners of files. So the folder of a session that belongs to us
/// has the uid of the host in its name. Without such a folder: geteuid().
[[nodiscard]] uid_t session_uid() noexcept;

/// The folder of this user's sockets: /dev/shm/sluice-<uid>. It depends on nothing in the
/// environment: a login shell, a cron job, a service and a container that shares /dev/shm all find
/// the same sessions.
[[nodiscard]] std::string runtime_dir();

/// Makes `folder` with mode 0700 if it is missing. Throws std::runtime_error, one line, if it
/// cannot be made, is not a folder of this user, or is open to others.
void ensure_private_folder(const std::string& folder);

/// The folder of the MPS daemon of a session of this user. See mps_session.hpp.
[[nodiscard]] std::string mps_folder(std::string_view session);

/// ensure_private_folder(runtime_dir())
void ensure_runtime_dir();

/// Makes runtime_dir() if it is missing. Until the returned descriptor is closed, nobody else holds
/// this lock and nobody removes the folder. Throws std::runtime_error.
[[nodiscard]] Fd lock_runtime_dir();

/// Removes runtime_dir() if it is empty and not locked. Quiet; waits for nobody.
void remove_runtime_dir_if_empty() noexcept;

}  // namespace sluice::base
