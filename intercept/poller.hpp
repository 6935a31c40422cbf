#pragma once

namespace sluice::intercept {

/// Tells the polling thread that a transparent job is open; starts it at the first call. It asks
/// the driver whether the job's work is done: every millisecond for a client that others may be
/// held for, every 10 ms for one of priority 0, whose jobs hold nobody. A thread of its own,
/// because the watcher makes no driver call.
void wake_poller() noexcept;

}  // namespace sluice::intercept
