#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "intercept/driver/driver.hpp"
#include "intercept/pacing/durations.hpp"
#include "intercept/pacing/event_pool.hpp"

namespace sluice::intercept {

/// Measures the GPU time of some launches of one stream with pairs of events. Launching threads
/// fill a ring, one at a time, and never wait; the polling thread empties it. Where streams share a
/// channel, a launch gets events without times, which show that its stream makes progress; with
/// eight channels, a kind of launch gets times once three of it have ended.
class Sampler {
 public:
  /// Begins a sample of the next launch if one is wanted, a pair is free and there are events for
  /// it. If true, end() must follow.
  [[nodiscard]] bool begin(LaunchDuration& duration, CUstream stream,
                           ContextEvents& events) noexcept {
    if (inside_.load(std::memory_order_relaxed) != 0) return spoil();
    return draw(duration) && begin_drawn(duration, stream, events, 1);
  }
  /// The same for a launch that was drawn already.
  [[nodiscard]] bool begin_wanted(LaunchDuration& duration, CUstream stream,
                                  ContextEvents& events) noexcept {
    if (inside_.load(std::memory_order_relaxed) != 0) return spoil();
    return begin_drawn(duration, stream, events, kAtOnce);
  }
  /// Call between begin() and end(), with fresh values of ClientSlot::others_quiet() and
  /// ClientSlot::quiet_in_own_job().
  void begun_while(std::optional<std::uint64_t> quiet,
                   std::optional<std::uint64_t> in_own_job = std::nullopt) noexcept;
  /// Takes the duration that begin() was given. `launched`: the launch did not fail. If it failed,
  /// the sample is dropped.
  void end(LaunchDuration& duration, CUstream stream, bool launched) noexcept;

  struct Quiet {
    /// ClientSlot::others_quiet() at the last call of collect() and at this one.
    std::optional<std::uint64_t> before;
    std::optional<std::uint64_t> now;
    std::optional<std::uint64_t> peers;  ///< ClientSlot::peers_quiet() at this call.
  };
  /// For the polling thread, to be called repeatedly. Events go back to the pool. A sample during
  /// which another client may have run is only an upper bound. `measured` is called with the
  /// duration of each sample.
  template <class Measured>
  void collect(const Quiet& quiet, ContextEvents& events, Measured measured) noexcept {
    const std::lock_guard lock(ending_);
    for (LaunchDuration* duration = collect_one(quiet, events); duration != nullptr;
         duration = collect_one(quiet, events)) {
      measured(*duration);
    }
  }
  [[nodiscard]] bool under_way() const noexcept { return taken_.load() != made_.load(); }
  /// Until when the stream has made progress, as far as its samples show: when the GPU was last
  /// seen to reach one, or when the oldest launch was made that the GPU has not reached. If no
  /// sample is under way, a launch at `given_ns` counts as progress.
  [[nodiscard]] std::uint64_t progress_ns(std::uint64_t given_ns) const noexcept;

  /// Call when the stream ends.
  void end_stream(const EventReturn& timed, const EventReturn& plain) noexcept;
  /// Reuses the object for another stream, after end_stream().
  void restart() noexcept;

 private:
  /// Many, because a stream's queue may contain 1000 launches of which each is of an unknown kind.
  static constexpr std::uint32_t kPairs = 64;
  /// Drawn launches of a kind under way at once. A deep queue keeps each for long.
  static constexpr std::uint32_t kAtOnce = 8;
  /// Of a known kind, one launch in so many is measured again: kSoon until there is a full set of
  /// samples, then kAgain, because the duration may have changed.
  static constexpr std::uint32_t kSoon = 16;
  static constexpr std::uint32_t kAgain = 256;

  struct Pair {
    CUevent before = nullptr;
    CUevent after = nullptr;
    LaunchDuration* duration = nullptr;
    std::uint32_t epoch = 0;  ///< code_epoch() at the launch.
    std::uint64_t host_ns =
        0;  ///< Host time between the two records; 0 if the sample contains none.
    /// Host time from the first record to the second; 0 like host_ns.
    std::uint64_t between_ns = 0;
    std::optional<std::uint64_t> begun;       ///< others_quiet() at the launch.
    std::optional<std::uint64_t> in_own_job;  ///< quiet_in_own_job() at the launch.
    bool timed = true;                        ///< The kind of its events.
    bool started = false;                     ///< `before` has been seen to have happened.
    std::optional<std::uint64_t> quiet;  ///< others_quiet() when `before` had not happened yet.
  };
  /// Programs repeat themselves, so a count could pick the same launches again and again. (A linear
  /// congruential generator; Numerical Recipes.)
  [[nodiscard]] bool draw(const LaunchDuration& duration) noexcept {
    constexpr std::uint32_t kAll = 0xffff'ffff;
    if (!duration.known() && !duration.bounded()) return true;
    const std::uint32_t random =
        random_.load(std::memory_order_relaxed) * 1'664'525U + 1'013'904'223U;
    random_.store(random, std::memory_order_relaxed);
    if (random >= kAll / kSoon) [[likely]]
      return false;
    return random < kAll / kAgain || duration.wants_samples();
  }
  /// `most`: samples of this kind that may be under way at once, with this one.
  [[nodiscard]] bool begin_drawn(LaunchDuration& duration, CUstream stream, ContextEvents& events,
                                 std::uint32_t most) noexcept;
  bool spoil() noexcept;
  void end_abandoned() noexcept;
  [[nodiscard]] static bool has_events(Pair& pair, ContextEvents& events, bool timed) noexcept;
  /// An EventPool, or an EventReturn, of each kind.
  template <class To>
  static void give_back(Pair& pair, To& timed, To& plain) noexcept {
    To& to = pair.timed ? timed : plain;
    for (CUevent* const event : {&pair.before, &pair.after}) {
      if (*event != nullptr) to.give_back(std::exchange(*event, nullptr));
    }
  }
  [[nodiscard]] static bool record_first(Pair& pair, CUstream stream) noexcept;
  [[nodiscard]] LaunchDuration* collect_one(const Quiet& quiet, ContextEvents& events) noexcept;
  static void take_in(const Pair& pair, const Quiet& quiet) noexcept;

  std::array<Pair, kPairs> pairs_;
  std::array<std::atomic<std::uint64_t>, kPairs> given_ns_{};  ///< When the launches were made.
  std::atomic<std::uint64_t> reached_ns_{0};
  std::atomic<std::uint32_t> made_{0};   ///< Written by the launching threads.
  std::atomic<std::uint32_t> taken_{0};  ///< Written by the polling thread.
  std::atomic<std::uint32_t> random_{0};
  std::atomic<pid_t> inside_{0};      ///< The thread between begin() and end(); 0: none.
  std::atomic<bool> spoiled_{false};  ///< Another thread launched in between.
  std::mutex ending_;                 ///< Launches never take this lock.
  std::atomic<bool> ended_{false};
};

}  // namespace sluice::intercept
