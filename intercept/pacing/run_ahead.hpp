#pragma once
#include <array>
#include <cstdint>
#include <mutex>
#include <optional>

#include "intercept/driver/driver.hpp"
#include "intercept/pacing/event_pool.hpp"

namespace sluice::intercept {

/// Bounds how far the program runs ahead of the GPU in one stream: what is queued takes at most a
/// given GPU time, plus one launch. So a stream empties in that time, when its memory is wanted.
/// An event marks each quarter of the bound.
///
/// Thread-safe. Holds its lock during no driver call: a record may wait for the GPU.
class RunAhead {
 public:
  /// For a launch of this duration, before it is given to the stream. May record a mark. False if
  /// one is due and the pool has no event for it.
  [[nodiscard]] bool add(std::uint64_t launch_ns, std::uint64_t bound_ns, CUstream stream,
                         EventPool& pool) noexcept;

  /// The event for which the launch must wait before it is given to the stream, and its number;
  /// null if it need not wait. Call passed() when the event has happened, and ask again.
  struct Wait {
    CUevent event = nullptr;
    std::uint32_t number = 0;
  };
  [[nodiscard]] Wait must_wait(std::uint64_t bound_ns) noexcept;
  void passed(const Wait& wait) noexcept;

  /// After a wait for the stream, or for a mark that took too long: what was queued until now does
  /// not count.
  void forget_marks() noexcept;

  /// Call when the stream ends. The pool is null if the stream ended with its context, and so did
  /// the events.
  void end_stream(const EventReturn& events) noexcept;

 private:
  static constexpr std::uint64_t kMarksInBound = 4;
  static constexpr std::size_t kMarks = 8;
  struct Mark {
    CUevent event = nullptr;
    std::uint64_t ns = 0;  ///< GPU time of the launches between the mark before and this one.
  };
  /// A mark that a thread is recording. The event is the thread's meanwhile.
  struct Marking {
    CUevent event;
    std::uint64_t ns;
    std::uint32_t stream;  ///< streams_ at the begin.
  };
  [[nodiscard]] std::optional<Marking> begin_mark(std::uint64_t launch_ns,
                                                  std::uint64_t bound_ns) noexcept;
  void end_mark(const Marking& marking, bool recorded) noexcept;

  std::mutex mutex_;
  std::uint32_t streams_ = 0;  ///< Streams that have ended.
  bool marking_ = false;
  std::array<Mark, kMarks> marks_;
  std::uint32_t made_ = 0;
  std::uint32_t passed_ = 0;
  std::uint64_t marked_ns_ = 0;    ///< Sum over the marks from passed_ to made_.
  std::uint64_t unmarked_ns_ = 0;  ///< Of the launches since the last mark.
};

}  // namespace sluice::intercept
