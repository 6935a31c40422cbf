#pragma once
#include <string>

namespace sluice::controller {

/// Starts the log to stderr. A thread of its own writes it, so that a stopped terminal does not
/// stop the heartbeat. If the queue is full, the oldest lines are dropped. `level`: off, error,
/// warn, info, debug.
void start_log(const std::string& level);

/// Prints a line that scripts wait for, at every log level.
void announce(const std::string& line);

/// Gives the log thread 300 ms to write the queued lines, then ends the process. The thread may be
/// stuck on a terminal indefinitely.
[[noreturn]] void flush_log_and_exit(int status);

}  // namespace sluice::controller
