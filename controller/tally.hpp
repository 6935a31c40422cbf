#pragma once
#include <atomic>
#include <cstdint>

namespace sluice::controller {

/// What this controller has done since it started. Written by the loop, read by the metrics thread.
struct Tally {
  std::atomic<std::uint64_t> attached{0};
  std::atomic<std::uint64_t> reattached{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> deaths_repaired{0};  ///< Clients that died without leaving.
  std::atomic<std::uint64_t> gates_opened{0};     ///< Gate bits that the dead had left closed.
  std::atomic<std::uint64_t> leases{0};           ///< Held now.
};

}  // namespace sluice::controller
