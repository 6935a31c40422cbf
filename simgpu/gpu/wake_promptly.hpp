#pragma once

namespace sluice::simgpu {

// Asks the kernel to run this process as soon as it wakes, as far as this user may. Only the
// accuracy on a busy machine depends on this: waits read memory when the process runs, not when the
// simulated GPU would.
void wake_promptly();

}  // namespace sluice::simgpu
