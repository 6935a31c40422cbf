#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

/// The memory that a fault_client shares with its test. The GPU itself writes to it, so the test
/// sees work being done even while the client is stopped, blocked or dead.
namespace sluice::test {

inline constexpr std::size_t kLanes = 4;
inline constexpr std::size_t kTimes = 8192;

/// One launching thread with a stream of its own.
struct alignas(4096) Lane {
  std::atomic<std::uint64_t> done;      ///< Launches completed. The GPU writes it in stream order.
  std::atomic<std::uint64_t> launched;  ///< Launches that have returned.
  /// Times when launches returned (CLOCK_MONOTONIC ns): launch i is at i modulo kTimes.
  std::array<std::atomic<std::uint64_t>, kTimes> returned_ns;
};

struct Progress {
  alignas(4096) std::atomic<std::uint64_t> release;  ///< A `hold` on the GPU waits for this word.
  std::array<Lane, kLanes> lanes;
};

}  // namespace sluice::test
