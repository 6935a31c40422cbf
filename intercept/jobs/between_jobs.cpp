// Between two jobs of one request the gates stay closed.
#include <utility>

#include "intercept/driver/process.hpp"
#include "intercept/jobs/jobs.hpp"
#include "intercept/trace/trace.hpp"

namespace sluice::intercept {

/// Whether the gates of the job that ends now stay closed for the next one. Open gates would bring
/// those below less than the next job waits for them.
bool Jobs::may_stay_closed(bool by_wait, std::uint64_t now) noexcept {
  const bool closed = closed_ns_ != 0 && window_ns_ == 0 && began_ns_ != 0;
  if (closed && holds_for_reference()) return true;
  const bool found = !g_process.explicit_jobs.load() && !g_process.announced_jobs.load();
  if (!by_wait || !closed || !found || !hold_others() || has_target() || client_.seat().reader())
    return false;
  return followers_.stay_closed(
      [&](std::uint64_t next) { return trials_.closes_at_first(next, now); });
}

/// The announcing thread opens them if the job does not come.
void Jobs::stay_closed(std::uint64_t now) noexcept {
  between_ = true;
  const bool reference = holds_for_reference();
  look_ns_ = now + (reference ? client_.to_real_ns(TargetLaw::kHoldNs) : followers_.soon_ns());
  note_begin(now, look_ns_);
  closed_ns_ = now;
  tell_budget(now);
  if (Trace* traced = g_process.trace.load())
    traced->job_begin(number_, shm::TraceJob::kTransparent, now);
  if (!announcer_.wake()) end_between(now);
}

void Jobs::end_between(std::uint64_t now) noexcept {
  if (std::exchange(between_, false)) release_below(now, 0);
}

/// The next job has come, and may begin with open gates after all.
void Jobs::open_again() noexcept {
  const std::uint64_t closed = std::exchange(closed_ns_, 0);
  if (Trace* traced = g_process.trace.load()) traced->job_end(number_, closed, shm::kTraceNoJob);
  note_begin(began_ns_, 0);
  open_in_job();
}

}  // namespace sluice::intercept
