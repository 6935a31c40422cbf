#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "shm/snapshot.hpp"

namespace sluice::tools {

/// What one client did between two looks at a board, and how long its last jobs took: of a client
/// that is never idle, its last steps.
struct ClientRates {
  double launches_per_s = 0;
  double jobs_per_s = 0;
  double gpu_share = 0;   ///< GPU time of its work per time, an estimate; 0 while unknown.
  double held_share = 0;  ///< 0 to 1: part of the time in which it had work and was held.
  std::size_t jobs = 0;   ///< Number of durations behind the next two, at most the last 64.
  std::uint64_t p50_ns = 0;
  std::uint64_t max_ns = 0;  ///< Of so few jobs a p99 says nothing else.
};

/// One look at a board, and what changed since the look before.
struct View {
  shm::Snapshot now;
  std::vector<ClientRates> rates;  ///< In the order of now.clients.
  std::uint64_t span_ns = 0;  ///< Between the two looks. 0: rates are since the client attached.
};

/// `before`: an earlier look, or nothing. The rates of a client that was not there, or that was on
/// another board, are since it attached.
[[nodiscard]] View make_view(const std::optional<shm::Snapshot>& before, shm::Snapshot now);

/// Whether what is shown of the client's jobs is of its steps, because it is never idle.
[[nodiscard]] bool of_steps(const shm::ClientSnapshot& client);
/// The durations of its last jobs, or of its last steps.
[[nodiscard]] const std::vector<std::uint64_t>& recent_ns(const shm::ClientSnapshot& client);

/// What the clients are ordered by.
enum class Sort : std::uint8_t { kPriority, kName, kHeld, kLaunches, kMax };

[[nodiscard]] Sort next(Sort sort);
[[nodiscard]] std::string_view to_string(Sort sort);

/// The clients to show, as indices into the view, in order: those whose name, command or pid
/// contains `filter`. Rates sort the greatest first.
[[nodiscard]] std::vector<std::size_t> rows_of(const View& view, Sort sort,
                                               const std::string& filter);

}  // namespace sluice::tools
