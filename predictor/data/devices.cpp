#include "predictor/data/devices.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <strings.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "base/error.hpp"

namespace sluice::predictor {
namespace {

constexpr const char* kHead = "name,clock_mhz,shared_kb,bandwidth_gbs,fp32_tflops";

DeviceInfo parse_line(const std::string& line, const std::string& where) {
  std::istringstream cells(line);
  DeviceInfo device;
  std::getline(cells, device.name, ',');
  for (const auto member : {&DeviceInfo::clock_mhz, &DeviceInfo::shared_kb,
                            &DeviceInfo::bandwidth_gbs, &DeviceInfo::fp32_tflops}) {
    std::string cell;
    std::getline(cells, cell, ',');
    char* end = nullptr;
    device.*member = std::strtod(cell.c_str(), &end);
    if (cell.empty() || *end != '\0' || !(device.*member > 0)) {
      throw base::UsageError(where + ": '" + cell + "' is not a positive number; the columns are " +
                             kHead);
    }
  }
  return device;
}

}  // namespace

std::vector<DeviceInfo> read_devices(const std::string& file) {
  std::ifstream in(file);
  if (!in) throw base::UsageError("cannot read the devices in " + file);
  std::vector<DeviceInfo> devices;
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    if (line.empty() || line.starts_with('#') || line == kHead) continue;
    devices.push_back(parse_line(line, fmt::format("{}, line {}", file, number)));
  }
  return devices;
}

const DeviceInfo& device_info(const std::vector<DeviceInfo>& devices, const std::string& name) {
  const auto found = std::ranges::find_if(devices, [&](const DeviceInfo& device) {
    return strcasecmp(device.name.c_str(), name.c_str()) == 0;
  });
  if (found != devices.end()) return *found;
  std::vector<std::string> names;
  for (const DeviceInfo& device : devices) names.push_back(device.name);
  throw base::UsageError(fmt::format(
      "no device '{}' in devices.csv, which has {}; give --devices a copy of it with a line of its "
      "data sheet",
      name, fmt::join(names, ", ")));
}

}  // namespace sluice::predictor
