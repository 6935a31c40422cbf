#pragma once
#include <sys/types.h>

#include <optional>
#include <string>

namespace sluice::base {

/// The name of a user, from every source of names of this machine, or the number. May wait for a
/// directory server.
[[nodiscard]] std::string user_name(uid_t uid);

/// The number of the user with this name. Nothing if there is none, or if it cannot be looked up
/// now. May wait for a directory server.
[[nodiscard]] std::optional<uid_t> find_user(const std::string& name);

/// The name of a user in /etc/passwd, or `uid N`. Never waits for a server.
[[nodiscard]] std::string local_user_name(uid_t uid);

}  // namespace sluice::base
