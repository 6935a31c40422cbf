#pragma once
#include <string>

#include "base/fd.hpp"

/// The folder of this user's sockets. It depends on nothing in the environment: a login shell, a
/// cron job, a service and a container that shares /dev/shm all find the same sessions.
namespace sluice::base {

/// /dev/shm/sluice-<uid>
[[nodiscard]] std::string runtime_dir();

/// Makes `folder` with mode 0700 if it is missing. Throws std::runtime_error, one line, if it
/// cannot be made, is not a folder of this user, or is open to others.
void ensure_private_folder(const std::string& folder);

/// ensure_private_folder(runtime_dir())
void ensure_runtime_dir();

/// Makes runtime_dir() if it is missing. Until the returned descriptor is closed, nobody else holds
/// this lock and nobody removes the folder. Throws std::runtime_error.
[[nodiscard]] Fd lock_runtime_dir();

/// Removes runtime_dir() if it is empty and not locked. Quiet; waits for nobody.
void remove_runtime_dir_if_empty() noexcept;

}  // namespace sluice::base
