#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "shm/last_durations.hpp"

/// The steps of one client that is never idle (docs/reference/steps.md), for status output only.
/// The client's process writes, and any process may read at any time. Part of the board's layout.
namespace sluice::shm {

/// What the gates below do while the client's steps run.
enum class StepState : std::uint32_t {
  kNone,       ///< The client has no steps: it is idle between its jobs.
  kLearning,   ///< Too few steps are known. The gates stay closed.
  kWindows,    ///< The gates open for a window now and then.
  kNoWindow,   ///< The gates stay closed: nobody is below, or windows are switched off.
  kJobs,       ///< The gates do what the target of jobs says, and the client has no end of a job.
  kTriesOpen,  ///< In every second block of steps the gates stay open, to see what closing brings.
  kOpen,       ///< The gates stay open: closing them brings nothing.
};

struct StepTimes {
  using Word = std::atomic<std::uint64_t>;
  using HalfWord = std::atomic<std::uint32_t>;

  static constexpr std::size_t kShown = 4;  ///< Kinds of steps, the most frequent first.

  struct Kind {
    HalfWord name;   ///< Tells one kind of steps of this client from the others; 0: no kind.
    HalfWord share;  ///< Of the last steps, in 1/1000.
    HalfWord p50_us;
    HalfWord p99_us;
  };

  Word ended;          ///< Steps that have ended since the client attached.
  Word open_ns;        ///< Total time of windows.
  HalfWord state;      ///< StepState
  HalfWord window_us;  ///< How long the gates open at a time.
  HalfWord windows;    ///< How often they have opened.
  HalfWord cost;       ///< What windows lengthen the steps by, in 1/1000: an estimate.
  std::array<Kind, kShown> kinds;
  Word total_ns;  ///< Sum of the durations of the steps in `ended`.
  /// Every step that was seen to end, also of a client that is idle between its jobs. So steps can
  /// be compared where a client is idle at times.
  Word seen;
  LastDurations last;  ///< Of the steps in `seen`.

  /// Adds a step. Only for the client's process, one call at a time. `counts`: in `ended`.
  void add(std::uint64_t ns, bool counts) noexcept {
    constexpr auto kRelaxed = std::memory_order_relaxed;
    if (counts) {
      total_ns.store(total_ns.load(kRelaxed) + ns, kRelaxed);
      ended.store(ended.load(kRelaxed) + 1, kRelaxed);
    }
    last.add(seen, ns);
  }

  /// For the controller, while no process has the slot.
  void clear() noexcept {
    ended.store(0);
    open_ns.store(0);
    total_ns.store(0);
    seen.store(0);
    last.clear();
    for (HalfWord* word : {&state, &window_us, &windows, &cost}) word->store(0);
    for (Kind& kind : kinds) {
      for (HalfWord* word : {&kind.name, &kind.share, &kind.p50_us, &kind.p99_us}) word->store(0);
    }
  }
};
static_assert(sizeof(StepTimes) == 632);

}  // namespace sluice::shm
