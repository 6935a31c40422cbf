#pragma once

namespace sluice::intercept {

/// Tells the polling thread that a transparent job is open; starts it at the first call. It asks
/// the driver every millisecond whether the job's work is done. A thread of its own, because the
/// watcher makes no driver call. Not for a client of priority 0, whose jobs hold nobody.
void wake_poller() noexcept;

}  // namespace sluice::intercept
