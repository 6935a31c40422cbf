#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "profiler/packs/pack.hpp"

namespace sluice::profiler {

/// What a network of a pack costs on each device.
struct NetworkSum {
  std::string name;
  std::int64_t batch = 1;
  std::size_t calls = 0;
  /// Device: the sum over the calls, each by the fastest program of its task.
  std::map<std::string, double> seconds{};
};

/// From the good records of a file, each network once. A device on which a call has no record is
/// left out, and so is a network without a device.
[[nodiscard]] std::vector<NetworkSum> network_sums(const std::vector<Network>& networks,
                                                   const std::string& records);

}  // namespace sluice::profiler
