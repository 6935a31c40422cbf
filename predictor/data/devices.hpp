#pragma once
#include <string>
#include <vector>

namespace sluice::predictor {

/// What is known of a device: a line of devices.csv.
struct DeviceInfo {
  std::string name{};  ///< "H200"; "H200@32": 32 of its SMs.
  double clock_mhz = 0;
  double shared_kb = 0;  ///< Shared memory of an SM.
  double bandwidth_gbs = 0;
  double fp32_tflops = 0;
};

/// Reads devices.csv. Throws base::UsageError that names file and line.
[[nodiscard]] std::vector<DeviceInfo> read_devices(const std::string& file);

/// The device with this name. Throws base::UsageError with what to do.
[[nodiscard]] const DeviceInfo& device_info(const std::vector<DeviceInfo>& devices,
                                            const std::string& name);

}  // namespace sluice::predictor
