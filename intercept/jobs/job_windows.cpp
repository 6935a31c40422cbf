// Waits that return while a job is open end its steps, and the gates open in these for a window.
#include <algorithm>

#include "base/clock.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/jobs/jobs.hpp"
#include "intercept/trace/trace.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {

/// Closes the gates of a trial, at the latest moment that there is.
Jobs::Wait Jobs::begin_wait(bool surely) noexcept {
  const Wait wait = waits_.begins(base::monotonic_ns(), g_process.event_marks.period());
  if (!surely || !trials_.closes_at_wait()) return wait;
  const std::lock_guard lock(mutex_);
  if (trials_.closes_at_wait()) close_open_job(wait.since_ns);
  return wait;
}

void Jobs::wait_returned(const Wait& wait, CUresult result, bool surely) noexcept {
  constexpr std::uint64_t kLongNs = 50'000;
  const std::uint64_t now = base::monotonic_ns();
  if (!surely && now - wait.since_ns < kLongNs) return;
  const std::lock_guard lock(mutex_);
  count_wait(wait, now);
  if (result == CUDA_SUCCESS) end_step(wait, now);
}

/// A wait has returned, and the job goes on. What threads remember is void, so that the first work
/// of the next step is seen.
void Jobs::end_step(const Wait& wait, std::uint64_t now) noexcept {
  if (!transparent_ || open_ != 1 || !hold_others()) return;
  const Steps::End end = steps_.wait_returned(wait, now, client_.launches());
  if (!end.ended) return;
  g_process.forget_remembered();
  if (end.first && !has_target()) {
    close_without_trial();
    trials_.decide_nothing();
  }
  if (end.close && window_ns_ != 0) close_window(now);
  if (end.counted) {
    end.paid ? budget_.ended_elsewhere(now) : budget_.ended(end.kind, now);
    budget_.began(now);
    settle_item(now, now - end.began_ns);
  }
  if (end.window_ns != 0 && closed_ns_ != 0) {
    give_window(now, now + end.window_ns);
  } else if (end.counted && !end.paid) {
    window_in_item(true, now);
  }
  Trace* const traced = g_process.trace.load();
  if (traced != nullptr && end.counted) traced->step(end.began_ns, now, end.kind);
}

/// Opens the gates, or leaves them open. Another thread closes them again; without it they stay
/// closed.
void Jobs::give_window(std::uint64_t now, std::uint64_t until) noexcept {
  if (window_ns_ != 0) {
    add_open(now);
  } else if (!open_gates(now)) {
    return;
  }
  window_ns_ = now;
  look_ns_ = window_until_ns_ = until;
  tell_budget(now);
  client_.slot().steps.windows.fetch_add(1, std::memory_order_relaxed);
}

bool Jobs::open_gates(std::uint64_t now) noexcept {
  if (client_.seat().reader() || !announcer_.wake()) return false;
  open_in_job();
  steps_.window_opened(now);
  return true;
}

/// The job goes on with open gates. Not for a reader: nobody is below it.
void Jobs::open_in_job() noexcept {
  client_.slot().open_job.fetch_add(1);
  shm::BoardView view(*client_.seat().writable);
  shm::end_job(view, client_.seat().slot);
}

void Jobs::close_window(std::uint64_t now) noexcept {
  look_ns_ = TargetLaw::kNever;
  shm::BoardView view(*client_.seat().writable);
  shm::begin_job(view, client_.seat().slot);
  end_open(now);
  steps_.window_closed(now);
  budget_window_ = false;
  tell_budget(now);
}

void Jobs::count_wait(const Wait& wait, std::uint64_t now) noexcept {
  if (open_ != 0 && began_ns_ != 0) waits_.returned(wait, now, began_ns_);
}

/// The gates were open until now.
void Jobs::end_open(std::uint64_t now) noexcept {
  client_.slot().open_job.fetch_add(1);
  add_open(now);
  window_ns_ = 0;
}

/// Counts the time since the gates opened, or since it was counted last.
void Jobs::add_open(std::uint64_t now) noexcept {
  shm::Slot& slot = client_.slot();
  const std::uint64_t since = std::min(now, window_ns_ != 0 ? window_ns_ : began_ns_);
  slot.open_ns.fetch_add(now - since);
  if (window_ns_ == 0) return;
  slot.steps.open_ns.fetch_add(now - since, std::memory_order_relaxed);
  if (Trace* traced = g_process.trace.load()) traced->window(number_, since, now);
}

}  // namespace sluice::intercept
