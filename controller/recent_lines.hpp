#pragma once
#include <spdlog/common.h>

#include <cstddef>
#include <cstdint>
#include <map>

#include "base/clock.hpp"

namespace sluice::controller {

/// Keeps clients from filling the log: of the lines about one process, or one user, it lets one in
/// 10 s be a warning.
class RecentLines {
 public:
  /// The level for a line about `id`, which is logged now.
  [[nodiscard]] spdlog::level::level_enum warn_or_debug(std::int64_t id) {
    constexpr std::uint64_t kQuietNs = 10'000'000'000;
    constexpr std::size_t kMostRemembered = 256;
    const std::uint64_t now = base::monotonic_ns();
    const auto [known, is_new] = warned_ns_.try_emplace(id, now);
    if (!is_new && now - known->second < kQuietNs) return spdlog::level::debug;
    known->second = now;
    if (warned_ns_.size() > kMostRemembered) warned_ns_.clear();
    return spdlog::level::warn;
  }

 private:
  std::map<std::int64_t, std::uint64_t> warned_ns_;  ///< When a line was last a warning.
};

}  // namespace sluice::controller
