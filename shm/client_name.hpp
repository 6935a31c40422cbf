#pragma once
#include <string>
#include <string_view>

namespace sluice::shm {

/// What users call a program that was given no name: its file name without the folder, or for an
/// interpreter (python train.py, bash serve.sh, python -m torch.distributed.run) the script's or
/// the module's name. `command_line` is as in /proc/PID/cmdline: each argument ends in a NUL.
[[nodiscard]] std::string client_name(std::string_view command_line);

/// What is wrong with a name that a user chose; empty if nothing.
[[nodiscard]] std::string check_client_name(const std::string& name);

}  // namespace sluice::shm
