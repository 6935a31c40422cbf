#pragma once
#include <string>

namespace sluice::base {

/// What separates this process from the other programs of the machine, so that they are not in one
/// session: "a pid namespace of its own", "an ipc namespace of its own", "a /dev/shm of its own".
/// Empty if nothing is known to. A container whose /dev/shm is that of the host still has pids of
/// its own, which a controller outside cannot see.
[[nodiscard]] std::string separation() noexcept;

/// The same with another folder than /proc.
[[nodiscard]] std::string separation_in(const std::string& proc) noexcept;

}  // namespace sluice::base
