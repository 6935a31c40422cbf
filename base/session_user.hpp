#pragma once
#include <sys/types.h>

/// Whose sessions this process sees.
namespace sluice::base {

/// Whether this process is in a user namespace, as in a rootless container.
[[nodiscard]] bool in_user_namespace() noexcept;

/// The uid in the names of this user's sessions. In a user namespace the kernel shows another uid
/// than on the host, also for the owners of files. So the folder of a session that belongs to us
/// has the uid of the host in its name. Without such a folder: geteuid().
[[nodiscard]] uid_t session_uid() noexcept;

}  // namespace sluice::base
