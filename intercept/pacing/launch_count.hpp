#pragma once
#include <cstdint>

namespace sluice::intercept {

/// The calling thread's stripe of the launch counters (shm::EntryCounters), which no other living
/// thread writes; -1 if all are taken. A thread without a stripe counts with a locked addition.
[[nodiscard]] int launch_stripe() noexcept;
/// Whether another thread than the calling one has a stripe. One that takes its first stripe later
/// has not read the version yet (both are in one total order), so it sees a change that the caller
/// has made before.
[[nodiscard]] bool others_have_stripes() noexcept;

/// Makes every launch that any thread of this process has counted visible to the caller, and
/// everything that the caller wrote before visible to every launch that is counted later. Costs the
/// launching threads nothing (membarrier(2)), and makes no system call if no other thread launches.
void order_launch_counts() noexcept;

}  // namespace sluice::intercept
