#include "server/figures/limits.hpp"

#include <algorithm>
#include <iterator>

namespace sluice::server {

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
