#include "server/figures/timing.hpp"

#include <algorithm>
#include <iterator>
#include <numeric>

namespace sluice::server {
namespace {

/// The weight of a new execution: the last ten or so decide.
constexpr double kNewWeight = 0.2;

}  // namespace

void Timing::measured(std::size_t items, std::span<const std::uint64_t> block_ns) {
  by_items_[items].assign(block_ns.begin(), block_ns.end());
}

void Timing::ran(std::size_t items, std::size_t first, std::size_t count, std::uint64_t took_ns) {
  std::vector<double> times = estimate(items);
  const auto begin = times.begin() + static_cast<std::ptrdiff_t>(first);
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  const double expected = std::accumulate(begin, end, 0.0);
  const auto took = static_cast<double>(took_ns);
  std::for_each(begin, end, [&](double& ns) {
    const double share = expected > 0 ? took * ns / expected : took / static_cast<double>(count);
    ns += kNewWeight * (share - ns);
  });
  by_items_[items] = std::move(times);
}

std::vector<double> Timing::estimate(std::size_t items) const {
  const auto above = by_items_.lower_bound(items);
  if (above == by_items_.end()) {
    // More items than any known execution: in proportion to the largest one.
    const auto& [known, times] = *by_items_.rbegin();
    std::vector<double> scaled = times;
    for (double& ns : scaled) ns *= static_cast<double>(items) / static_cast<double>(known);
    return scaled;
  }
  if (above->first == items || above == by_items_.begin()) return above->second;
  const auto below = std::prev(above);
  const double part =
      static_cast<double>(items - below->first) / static_cast<double>(above->first - below->first);
  std::vector<double> times = below->second;
  for (std::size_t i = 0; i < times.size(); ++i) times[i] += part * (above->second[i] - times[i]);
  return times;
}

std::vector<std::uint64_t> Timing::block_ns(std::size_t items) const {
  const std::vector<double> times = estimate(items);
  return {times.begin(), times.end()};
}

std::uint64_t Timing::whole_ns(std::size_t items) const {
  const auto times = block_ns(items);
  return std::accumulate(times.begin(), times.end(), std::uint64_t{0});
}

void Limits::measured(std::size_t items, std::uint64_t whole_ns) {
  const std::lock_guard lock(mutex_);
  by_items_[items] = whole_ns;
}

void Limits::ran(std::size_t items, std::uint64_t whole_ns) {
  const std::lock_guard lock(mutex_);
  const auto [known, is_new] = by_items_.try_emplace(items, whole_ns);
  if (!is_new) known->second = std::min(known->second, whole_ns);
}

std::uint64_t Limits::ns(std::size_t items) const {
  const std::lock_guard lock(mutex_);
  const auto above = by_items_.lower_bound(items);
  if (above == by_items_.end()) {
    const auto& [known, whole_ns] = *by_items_.rbegin();
    return whole_ns * items / known;
  }
  if (above->first == items || above == by_items_.begin()) return above->second;
  const auto below = std::prev(above);
  const double part =
      static_cast<double>(items - below->first) / static_cast<double>(above->first - below->first);
  const auto from = static_cast<double>(below->second);
  return static_cast<std::uint64_t>(from + part * (static_cast<double>(above->second) - from));
}

}  // namespace sluice::server
