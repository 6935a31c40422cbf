// Where the processes of a session meet their GPU.
#pragma once

#include <string>

#include "base/fd.hpp"

namespace sluice::simgpu {

// The GPU process's socket of the session in SLUICE_SESSION, <runtime folder>/<session>.simgpu;
// empty when that is no session's name or too long for a socket.
std::string socket_path();

// Makes the runtime folder and returns a descriptor of it that holds an exclusive flock, so that
// one process at a time starts or ends a GPU process. Empty when the folder is not ours or open to
// others.
base::Fd lock_runtime_dir();

}  // namespace sluice::simgpu
