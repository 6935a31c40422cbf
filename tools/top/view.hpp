#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// What shows only between two looks at a board, and of one client's last jobs.
struct ClientRates {
  double launches_per_s = 0;
  double jobs_per_s = 0;
  double held_share = 0;  ///< 0 to 1: part of the time in which it had work and was held.
  std::size_t jobs = 0;   ///< How many durations the percentiles are of: at most the last 64.
  std::uint64_t p50_ns = 0;
  std::uint64_t p99_ns = 0;
};

/// One look at a board, and what changed since the one before.
struct View {
  shm::Snapshot now;
  std::vector<ClientRates> rates;  ///< In the order of now.clients.
  std::uint64_t span_ns = 0;       ///< Between the two looks; 0: rates are since a client attached.
};

/// `before`: an earlier look, or nothing. A client that was not there then, or a look at another
/// board, counts from when the client attached.
[[nodiscard]] View make_view(const std::optional<shm::Snapshot>& before, shm::Snapshot now);

}  // namespace sluice::tools
