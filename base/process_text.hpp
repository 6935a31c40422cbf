#pragma once
#include <sys/types.h>

#include <cstddef>
#include <string>
#include <string_view>

/// What /proc says about a process, as text.
namespace sluice::base {

/// At most `max_bytes` of /proc/PID/`file`; empty if it cannot be read.
[[nodiscard]] std::string read_proc(pid_t pid, const char* file, std::size_t max_bytes);

/// Name of the process (/proc/PID/comm). Never blocks.
[[nodiscard]] std::string short_name(pid_t pid);

/// Command line with spaces between the arguments, at most `max_bytes`. May block: the kernel takes
/// the address-space lock of the process, which a fork holds, for instance.
[[nodiscard]] std::string command_line(pid_t pid, std::size_t max_bytes);

/// `text` for a log or a label: valid UTF-8 of at most `max_bytes`, control characters replaced.
[[nodiscard]] std::string printable(std::string_view text, std::size_t max_bytes);

}  // namespace sluice::base
