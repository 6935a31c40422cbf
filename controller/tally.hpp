#pragma once
#include <atomic>
#include <cstdint>

namespace sluice::controller {

/// Counters of this controller since its start. The loop writes, the metrics thread reads.
struct Tally {
  std::atomic<std::uint64_t> attached{0};
  std::atomic<std::uint64_t> reattached{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> deaths_repaired{0};  ///< Clients that died without leaving.
  std::atomic<std::uint64_t> leases{0};           ///< Current number.
};

}  // namespace sluice::controller
