// Durations on the simulated GPU, in simulated ns. Measured on one H200 (driver 580, CUDA 13.0,
// 2026-11) unless stated otherwise.
#pragma once

#include <cstdint>

namespace sluice::simgpu::cost {

inline constexpr double kSlice = 2'200'000;
inline constexpr double kSwitch = 120'000;
inline constexpr double kWaitValue = 2'400;
inline constexpr double kWaitValueInGraph = 2'600;
inline constexpr double kWriteValue = 2'100;
// From the call to the kernel's start on an idle GPU. Chosen: together with the time in which the
// simulator handles the end, launch + synchronise of an empty kernel takes 8.5 to 20 us.
inline constexpr double kLaunch = 5'000;
// Added if the stream has been idle for kIdle. Chosen: on the H200 launch + synchronise takes 8.5
// us in a loop, and 18 to 28 us once every few ms.
inline constexpr double kIdle = 1'000'000;
inline constexpr double kLaunchAfterIdle = 12'000;
inline constexpr double kSubmit = 1'000;  // kLaunch for commands other than kernels; chosen
// Copies and fills. Chosen from the data sheet.
inline constexpr double kCopyStart = 1'500;
inline constexpr double kNsPerByteAcrossBus = 1.0 / 50.0;
inline constexpr double kNsPerByteOnDevice = 1.0 / 2'000.0;

}  // namespace sluice::simgpu::cost
