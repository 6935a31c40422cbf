#pragma once

namespace sluice::controller {

/// Gives the service manager a copy of the board's descriptor to keep while the service restarts,
/// in place of the one before: FDSTORE of sd_notify(3). The next service finds the board in it as
/// in the open files of any process. Does nothing without a service manager.
void keep_for_next_run(int memory);

}  // namespace sluice::controller
