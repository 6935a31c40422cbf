#pragma once
#include <string>

namespace sluice::controller {

/// Log to stderr from a thread of its own with a bounded queue, the oldest lines going first: a
/// terminal that is stopped must not stop the heartbeat. `level`: off, error, warn, info, debug.
void start_log(const std::string& level);

/// A line that scripts wait for: written under every level.
void announce(const std::string& line);

/// Gives the log thread a moment to write what is queued, then ends the process: the thread may
/// be stuck on a terminal for ever.
[[noreturn]] void flush_log_and_exit(int status);

}  // namespace sluice::controller
