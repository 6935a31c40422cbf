#pragma once
#include <array>
#include <string>
#include <vector>

namespace sluice::predictor {

/// What is known of a device: a line of devices.csv.
struct DeviceInfo {
  std::string name{};  ///< "H200"; "H200@32": 32 of its SMs; "cpu@2": two threads.
  double clock_mhz = 0;
  double memory_gb = 0;
  double shared_kb = 0;  ///< Shared memory of an SM, or the last-level cache.
  double l2_mb = 0;
  double l1_kb = 0;
  double bandwidth_gbs = 0;
  double fp32_tflops = 0;
  double launch_us = 0;
};

inline constexpr std::size_t kDeviceNumbers = 8;

/// What a network reads of a device: 1, the clock, and ratios to a large device, on a scale of
/// powers of two where devices differ by powers of two.
[[nodiscard]] std::array<float, kDeviceNumbers> device_numbers(const DeviceInfo& device);

/// Reads devices.csv. Throws base::UsageError that names file and line.
[[nodiscard]] std::vector<DeviceInfo> read_devices(const std::string& file);

/// The device with this name. Throws base::UsageError with what to do.
[[nodiscard]] const DeviceInfo& device_info(const std::vector<DeviceInfo>& devices,
                                            const std::string& name);

}  // namespace sluice::predictor
