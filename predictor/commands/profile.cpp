#include "predictor/train/profile.hpp"

#include <fmt/format.h>

#include "base/error.hpp"
#include "predictor/commands/commands.hpp"

namespace sluice::predictor {

void profile_command(const Options& options) {
  if (options.device_name.empty()) {
    throw base::UsageError("--device-name is missing: the name of the line in devices.csv");
  }
  const DeviceInfo device = measure_device(options.device, options.device_name, options.threads);
  const std::string file = devices_file(options).string();
  save_device(file, device);
  fmt::print(
      "{}: {:.0f} MHz, {:.1f} GB, bandwidth {:.0f} GB/s, fp32 {:.2f} TFLOPS, launch {:.1f} us; "
      "written: {}\n",
      device.name, device.clock_mhz, device.memory_gb, device.bandwidth_gbs, device.fp32_tflops,
      device.launch_us, file);
}

}  // namespace sluice::predictor
