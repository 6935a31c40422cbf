#pragma once

namespace sluice::simgpu {

// Asks the kernel to run this process as soon as it wakes, as far as this user may: nothing depends
// on it but how true the simulation stays on a busy machine, since waits read memory when the
// process runs and not when the simulated GPU would.
void wake_promptly();

}  // namespace sluice::simgpu
