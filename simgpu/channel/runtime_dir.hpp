// The place where the processes of a session find their GPU process.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace sluice::simgpu {

// The session in SLUICE_SESSION, valid or not.
std::string session_name();

// The socket of the GPU process of the session in SLUICE_SESSION: <runtime
// folder>/<session>.simgpu. Empty if that is not a session name, or too long for a socket.
std::string socket_path();

// Creates the runtime folder and returns a descriptor of it with an exclusive flock, so that only
// one process at a time starts or ends a GPU process. Empty if the folder belongs to another user
// or is open to others.
base::Fd lock_runtime_dir();

}  // namespace sluice::simgpu
