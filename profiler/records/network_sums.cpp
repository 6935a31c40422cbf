#include "profiler/records/network_sums.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "profiler/records/record.hpp"

namespace sluice::profiler {
namespace {

/// Of a device: the shortest time of each task.
using Fastest = std::map<std::string, double>;

std::map<std::string, Fastest> fastest_by_device(const std::string& file) {
  std::map<std::string, Fastest> found;
  for (const Record& record : read_records(file).records) {
    if (!record.good() || !record.details) continue;
    Fastest& fastest = found[record.details->device];
    const auto [place, fresh] = fastest.try_emplace(record.details->task, record.cost());
    if (!fresh) place->second = std::min(place->second, record.cost());
  }
  return found;
}

}  // namespace

std::vector<NetworkSum> network_sums(const std::vector<Network>& networks,
                                     const std::string& records) {
  const auto devices = fastest_by_device(records);
  std::vector<NetworkSum> sums;
  std::set<std::pair<std::string, std::int64_t>> seen;
  for (const Network& network : networks) {
    if (network.calls.empty() || !seen.emplace(network.name, network.batch).second) continue;
    NetworkSum sum{.name = network.name, .batch = network.batch, .calls = network.calls.size()};
    for (const auto& [device, fastest] : devices) {
      double seconds = 0;
      const bool all = std::ranges::all_of(network.calls, [&](const Network::Call& call) {
        const auto found = fastest.find(call.task);
        if (found != fastest.end()) seconds += found->second;
        return found != fastest.end();
      });
      if (all) sum.seconds[device] = seconds;
    }
    if (!sum.seconds.empty()) sums.push_back(std::move(sum));
  }
  return sums;
}

}  // namespace sluice::profiler
