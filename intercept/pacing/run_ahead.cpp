#include "intercept/pacing/run_ahead.hpp"

#include <algorithm>
#include <utility>

#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

bool RunAhead::add(std::uint64_t launch_ns, std::uint64_t bound_ns, CUstream stream,
                   EventPool& pool) noexcept {
  const NoCancel whole;
  std::optional<Marking> marking = begin_mark(launch_ns, bound_ns);
  if (!marking) return true;
  if (marking->event == nullptr) marking->event = pool.take();
  const bool recorded =
      marking->event != nullptr && driver().cuEventRecord(marking->event, stream) == CUDA_SUCCESS;
  end_mark(*marking, recorded);
  return marking->event != nullptr;
}

/// While one thread records a mark, the launches of others are left for the next one.
std::optional<RunAhead::Marking> RunAhead::begin_mark(std::uint64_t launch_ns,
                                                      std::uint64_t bound_ns) noexcept {
  const std::lock_guard lock(mutex_);
  const std::uint64_t before_ns = unmarked_ns_;
  unmarked_ns_ += launch_ns;
  const bool due = before_ns != 0 && unmarked_ns_ > bound_ns / kMarksInBound;
  if (!due || marking_ || made_ - passed_ >= kMarks) return std::nullopt;
  marking_ = true;
  return Marking{std::exchange(marks_[made_ % kMarks].event, nullptr), before_ns, streams_};
}

/// If the stream has ended meanwhile, the event is left to its context.
void RunAhead::end_mark(const Marking& marking, bool recorded) noexcept {
  const std::lock_guard lock(mutex_);
  if (marking.stream != streams_) return;
  marking_ = false;
  Mark& mark = marks_[made_ % kMarks];
  mark.event = marking.event;
  if (!recorded) return;
  mark.ns = std::min(marking.ns, unmarked_ns_);
  unmarked_ns_ -= mark.ns;
  marked_ns_ += mark.ns;
  ++made_;
}

RunAhead::Wait RunAhead::must_wait(std::uint64_t bound_ns) noexcept {
  const std::lock_guard lock(mutex_);
  if (made_ == passed_ || marked_ns_ + unmarked_ns_ <= bound_ns) return {};
  return {marks_[passed_ % kMarks].event, passed_};
}

void RunAhead::passed(const Wait& wait) noexcept {
  const std::lock_guard lock(mutex_);
  if (wait.number != passed_ || made_ == passed_) return;
  marked_ns_ -= marks_[passed_ % kMarks].ns;
  ++passed_;
}

void RunAhead::forget_marks() noexcept {
  const std::lock_guard lock(mutex_);
  passed_ = made_;
  marked_ns_ = unmarked_ns_ = 0;
}

void RunAhead::end_stream(const EventReturn& events) noexcept {
  std::array<Mark, kMarks> ended;
  {
    const std::lock_guard lock(mutex_);
    ended = std::exchange(marks_, {});
    ++streams_;
    marking_ = false;
    made_ = passed_ = 0;
    marked_ns_ = unmarked_ns_ = 0;
  }
  for (const Mark& mark : ended) events.give_back(mark.event);
}

}  // namespace sluice::intercept
