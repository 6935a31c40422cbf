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
// Under MPS, a kernel's last part, in which it has given its multiprocessors back and the next
// kernel of its stream cannot begin yet. Chosen: about the pause between two kernels of a stream.
inline constexpr double kTail = 1'000;
// How much longer a kernel takes next to kernels of other MPS clients on all multiprocessors, by
// the bandwidth that they share. Fitted to a server that decodes next to a fine-tuning on 12, 25
// and 50 % of the multiprocessors: 1.06, 1.10 and 1.17 times (three H200, driver 580, 2026-11).
inline constexpr double kSharedBandwidth = 0.35;
// Copies and fills. Chosen from the data sheet.
inline constexpr double kCopyStart = 1'500;
inline constexpr double kNsPerByteAcrossBus = 1.0 / 50.0;
inline constexpr double kNsPerByteOnDevice = 1.0 / 2'000.0;

}  // namespace sluice::simgpu::cost
