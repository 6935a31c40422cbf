#include "intercept/pacing/run_ahead.hpp"

#include <utility>

#include "intercept/driver/driver_query.hpp"
#include "intercept/driver/threads.hpp"

namespace sluice::intercept {

/// Events are made once, in the launching context, because that is slow and can block.
bool RunAhead::record(Mark& mark, CUstream stream) noexcept {
  if (mark.event == nullptr) {
    const RelaxedCapture relaxed;
    if (driver().cuEventCreate(&mark.event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
      mark.event = nullptr;
      return false;
    }
  }
  return driver().cuEventRecord(mark.event, stream) == CUDA_SUCCESS;
}

void RunAhead::add(std::uint64_t launch_ns, std::uint64_t bound_ns, CUstream stream) noexcept {
  const NoCancel whole;
  const std::lock_guard lock(mutex_);
  const bool due = unmarked_ns_ != 0 && unmarked_ns_ + launch_ns > bound_ns / kMarksInBound;
  if (due && made_ - passed_ < kMarks) {
    Mark& mark = marks_[made_ % kMarks];
    if (record(mark, stream)) {
      mark.ns = std::exchange(unmarked_ns_, 0);
      marked_ns_ += mark.ns;
      ++made_;
    }
  }
  unmarked_ns_ += launch_ns;
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

void RunAhead::end_stream(bool gone) noexcept {
  const std::lock_guard lock(mutex_);
  for (Mark& mark : marks_) {
    if (mark.event != nullptr && !gone) driver().cuEventDestroy_v2(mark.event);
    mark = {};
  }
  made_ = passed_ = 0;
  marked_ns_ = unmarked_ns_ = 0;
}

}  // namespace sluice::intercept
