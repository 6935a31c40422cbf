// What the simulated GPU takes for things, in simulated nanoseconds. Measured on one H200
// (driver 580, CUDA 13.0, 2026-11) unless said otherwise.
#pragma once

#include <cstdint>

namespace sluice::simgpu::cost {

inline constexpr double kSlice = 2'200'000;
inline constexpr double kSwitch = 120'000;
inline constexpr double kWaitValue = 2'400;
inline constexpr double kWaitValueInGraph = 2'600;
inline constexpr double kWriteValue = 2'100;
// From the call to the kernel's start on an idle GPU. Chosen: with the time the simulator needs
// to notice and report the end it makes launch + synchronise of an empty kernel 8.5 to 20 us.
inline constexpr double kLaunch = 5'000;
// On top of it when the stream has been idle for kIdle. Chosen: launch + synchronise is 8.5 us in a
// loop and 18 to 28 us every few ms.
inline constexpr double kIdle = 1'000'000;
inline constexpr double kLaunchAfterIdle = 12'000;
inline constexpr double kSubmit = 1'000;  // the same for commands that are no kernel; chosen
// Copies and fills; chosen from the data sheet.
inline constexpr double kCopyStart = 1'500;
inline constexpr double kNsPerByteAcrossBus = 1.0 / 50.0;
inline constexpr double kNsPerByteOnDevice = 1.0 / 2'000.0;

}  // namespace sluice::simgpu::cost
