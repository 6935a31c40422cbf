#pragma once
#include <array>
#include <atomic>
#include <cstdint>

#include "shm/board.hpp"

namespace sluice::controller {

/// What this controller has done since it started. Written by the loop, read by the metrics thread.
struct Tally {
  std::atomic<std::uint64_t> attached{0};
  std::atomic<std::uint64_t> reattached{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> deaths_repaired{0};  ///< Clients that died without leaving.
  std::atomic<std::uint64_t> gates_opened{0};     ///< Gate bits that the dead had left closed.
  std::atomic<std::uint64_t> leases{0};           ///< Held now.

  /// Job counter of each slot when its client came: a slot's counter outlives its clients,
  /// because waived jobs are known by it.
  std::array<std::atomic<std::uint64_t>, shm::kSlots> first_job{};
};

}  // namespace sluice::controller
