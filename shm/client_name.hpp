#pragma once
#include <string>
#include <string_view>

namespace sluice::shm {

/// The name of a program without a name from the user: its file name without the folder. For an
/// interpreter (python train.py, bash serve.sh, python -m torch.distributed.run), the name of the
/// script or module. `command_line` has the form of /proc/PID/cmdline: each argument ends in a NUL.
[[nodiscard]] std::string client_name(std::string_view command_line);

/// The error for a name from a user; empty if the name is valid.
[[nodiscard]] std::string check_client_name(const std::string& name);

}  // namespace sluice::shm
