#pragma once
#include <string>

#include "predictor/data/devices.hpp"

namespace sluice::predictor {

/// Measures bandwidth, peak and launch latency of a device with LibTorch; the rest is what the
/// driver or Linux says. `device`: as in TrainOptions. `name`: as the line is to be called.
/// `threads`: of an operator on the CPU.
[[nodiscard]] DeviceInfo measure_device(const std::string& device, const std::string& name,
                                        int threads);

}  // namespace sluice::predictor
