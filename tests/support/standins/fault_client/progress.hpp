#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// What a fault_client shares with its test: a page that the GPU itself writes to, so that the
/// test sees work being done also while the client is stopped, blocked or dead.
namespace sluice::test {

inline constexpr std::size_t kLanes = 4;
inline constexpr std::size_t kTimes = 8192;

/// One launching thread with a stream of its own.
struct alignas(4096) Lane {
  std::atomic<std::uint64_t> done;      ///< Launches completed; the GPU writes it, in stream order.
  std::atomic<std::uint64_t> launched;  ///< Launches that have returned.
  /// When launch i returned (CLOCK_MONOTONIC ns), at i modulo kTimes.
  std::array<std::atomic<std::uint64_t>, kTimes> returned_ns;
};

struct Progress {
  alignas(4096) std::atomic<std::uint64_t> release;  ///< What a `hold` on the GPU waits for.
  std::array<Lane, kLanes> lanes;
};

}  // namespace sluice::test
