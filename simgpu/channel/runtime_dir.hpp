// Where the processes of a session meet.
#pragma once

#include <string>

#include "simgpu/channel/fd.hpp"

namespace sluice::simgpu {

// $XDG_RUNTIME_DIR/sluice or /tmp/sluice-<uid>. Makes nothing.
std::string runtime_dir();

// The GPU process's socket of the session in SLUICE_SESSION; empty when the name is not usable
// as a file name.
std::string socket_path();

// Makes the folder (0700) and returns a descriptor of it that holds an exclusive flock, so that
// one process at a time starts or ends a GPU process. Empty, with errno set, when the folder is
// not ours or open to others.
Fd lock_runtime_dir();

}  // namespace sluice::simgpu
