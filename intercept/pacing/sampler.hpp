#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "intercept/driver/driver.hpp"
#include "intercept/pacing/durations.hpp"

namespace sluice::intercept {

/// Pairs of events around some launches of one stream: how long they take on the GPU. Threads that
/// launch fill a ring, one at a time, and never wait; the polling thread empties it.
class Sampler {
 public:
  /// Whether the launch that comes is worth a sample, and a pair is free. Then end() must follow.
  [[nodiscard]] bool begin(LaunchDuration& length, CUstream stream) noexcept;
  /// Between the two: the number that collect() takes as `now`, from just now.
  void begun_while(std::optional<std::uint64_t> quiet) noexcept;
  /// `launched`: it did not fail. Else there is nothing to measure.
  void end(CUstream stream, bool launched) noexcept;

  /// For the polling thread, again and again. A number that stays the same while no other client of
  /// the device runs a job, and is nothing while one does: `before` from the last call, `now` from
  /// just now. A sample during which another client may have run is an upper bound only. Returns
  /// whether samples are under way.
  bool collect(std::optional<std::uint64_t> before, std::optional<std::uint64_t> now) noexcept;
  [[nodiscard]] bool under_way() const noexcept { return taken_.load() != made_.load(); }

  /// The stream ends. With its context (`gone`) the events have ended too.
  void end_stream(bool gone) noexcept;
  /// For another stream, after end_stream().
  void restart() noexcept;

 private:
  /// A stream may hold 1000 launches, and each kind of them is unknown at first.
  static constexpr std::uint32_t kPairs = 64;
  /// Of what is known already, one launch in so many is measured again: soon, for a full set of
  /// samples, then for what may have changed.
  static constexpr std::uint32_t kSoon = 16;
  static constexpr std::uint32_t kAgain = 256;

  struct Pair {
    CUevent before = nullptr;
    CUevent after = nullptr;
    LaunchDuration* length = nullptr;
    std::uint64_t host_ns = 0;  ///< Between the two records; 0 where the sample holds none of it.
    std::optional<std::uint64_t> begun;  ///< The number when it was made.
    bool started = false;                ///< `before` was seen to have happened,
    std::optional<std::uint64_t> quiet;  ///< and this was the number when it had not yet.
  };
  [[nodiscard]] bool draw(std::uint32_t one_in) noexcept;
  [[nodiscard]] bool has_events(Pair& pair) noexcept;
  [[nodiscard]] static bool record_first(Pair& pair, CUstream stream) noexcept;
  static void take_in(const Pair& pair, std::optional<std::uint64_t> now) noexcept;

  std::array<Pair, kPairs> pairs_;
  std::atomic<std::uint32_t> made_{0};   ///< Of the launching thread.
  std::atomic<std::uint32_t> taken_{0};  ///< Of the polling thread.
  std::atomic<std::uint32_t> random_{0};
  std::atomic<bool> open_{false};     ///< From begin() to end(), of one of the launching threads.
  std::atomic<bool> spoiled_{false};  ///< Another thread's launch came in between.
  std::mutex ending_;                 ///< Of this stream's launches none takes it.
  std::atomic<bool> ended_{false};
};

}  // namespace sluice::intercept
