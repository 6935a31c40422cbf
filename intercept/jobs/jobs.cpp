#include "intercept/jobs/jobs.hpp"

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "intercept/driver/process.hpp"
#include "intercept/jobs/before_job.hpp"
#include "intercept/trace/trace.hpp"
#include "shm/target_counts.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {

shm::TraceJob Jobs::kind_of_job() noexcept {
  return g_process.explicit_jobs.load() ? shm::TraceJob::kExplicit : shm::TraceJob::kTransparent;
}

void Jobs::open_one(std::uint64_t until_ns, std::uint64_t kind) noexcept {
  if (open_++ != 0) return;
  began_ns_ = base::monotonic_ns();
  waits_.job_begins();
  launches_at_begin_ = client_.launches();
  steps_.job_begins(began_ns_, launches_at_begin_);
  call_off_late(began_ns_);
  followers_.began(kind, began_ns_);
  const bool closed = std::exchange(ahead_, false);
  const bool stayed = std::exchange(between_, false);
  if (stayed) look_ns_ = TargetLaw::kNever;
  trials_.skip();
  kind_ = kind;
  // Between jobs the law of jobs decides anew, and a target has closed the gates for this job.
  const bool early = closed || (stayed && has_target());
  const bool close = until_ns != 0 || must_close(began_ns_, early, kind);
  const bool reference = stayed && has_target();
  const bool may_open = close && until_ns == 0 && !reference;
  if (may_open && begin_in_window(closed || stayed, began_ns_)) {
    // The gates close in the middle of the job.
  } else if (closed || (stayed && close)) {
    say_until(until_ns);
  } else if (stayed) {
    open_again();
  } else if (close) {
    hold_below(began_ns_, until_ns);
  } else {
    note_begin(began_ns_, until_ns);
    client_.slot().open_job.fetch_add(1);
  }
  tell_budget(began_ns_);
  budget_.began(began_ns_);
  prepare_window(began_ns_);
  // Learn after the gates are closed, because what is learned concerns the next job only.
  if (hold_others()) learn_begin(began_ns_);
}

/// Whether the gates must close at the begin of a job. `closed`: they are closed already.
bool Jobs::must_close(std::uint64_t now, bool closed, std::uint64_t kind) noexcept {
  TargetLaw::Step step{true, TargetLaw::kNever};
  if (has_target()) {
    quiet_.begin(client_.seat().board, client_.seat().slot, now);
    step = law_.begin(now, has_lower_clients(client_), closed);
    trials_.decide_nothing();
  } else {
    law_.skip();
    if (closed) trials_.closed_before();
    if (!trials_.on() || !hold_others() || closed) return true;
    step = trials_.begin(now, kind);
  }
  look_ns_ = step.look_ns;
  // The watcher looks every 20 ms anyway.
  const bool in_time = !trials_.runs() || trials_.looks_in_time();
  if (in_time && look_ns_ != TargetLaw::kNever && !announcer_.wake()) return true;
  return step.close;
}

/// `until_ns` is not 0 if no job has begun yet. It is written before the gates close, because this
/// process may be stopped as soon as they are closed.
void Jobs::hold_below(std::uint64_t now, std::uint64_t until_ns) noexcept {
  note_begin(now, until_ns);
  close_gates(now);
  tell_budget(now);
}

void Jobs::note_begin(std::uint64_t now, std::uint64_t until_ns) noexcept {
  ++number_;
  client_.slot().job_since_ns.store(now);
  say_until(until_ns);
}

void Jobs::close_gates(std::uint64_t now) noexcept {
  closed_ns_ = now;
  if (trials_.runs()) look_ns_ = TargetLaw::kNever;
  const Seat& seat = client_.seat();
  if (seat.reader()) {
    seat.words.job.fetch_add(1);  // nobody is below a reader
  } else {
    shm::BoardView view(*seat.writable);
    shm::begin_job(view, seat.slot);
  }
  if (Trace* traced = g_process.trace.load()) traced->job_begin(number_, kind_of_job(), now);
}

/// `at_ns`: when the job ended; 0: now.
void Jobs::close_one(bool by_wait, std::uint64_t at_ns) noexcept {
  if (open_ == 0 || --open_ != 0) return;
  const std::uint64_t now = at_ns != 0 ? std::max(at_ns, began_ns_) : base::monotonic_ns();
  prediction_.ended(now);
  by_wait ? followers_.ended(now) : followers_.goes_on();
  const bool stay = may_stay_closed(by_wait, now);
  release_below(now, began_ns_ == 0 ? 0 : std::max<std::uint64_t>(now - began_ns_, 1), stay);
  if (stay) stay_closed(now);
}

/// `took_ns` is 0 if there was no job. `stay`: gates that are closed stay closed.
void Jobs::release_below(std::uint64_t now, std::uint64_t took_ns, bool stay) noexcept {
  const Seat& seat = client_.seat();
  if (!seat.reader()) shm::BoardView(*seat.writable).count_held(seat.slot);
  const bool opened = closed_ns_ == 0 || window_ns_ != 0;
  if (opened) end_open(now);
  const std::uint64_t closed = std::exchange(closed_ns_, 0);
  if (opened || stay) {
    // The gates are as they shall be.
  } else if (seat.reader()) {
    seat.words.job.fetch_add(1);
  } else {
    shm::BoardView view(*seat.writable);
    shm::end_job(view, seat.slot);
  }
  look_ns_ = TargetLaw::kNever;
  tell_budget(now);
  if (took_ns != 0) steps_.has_steps() ? budget_.ended_elsewhere(now) : budget_.ended(kind_, now);
  const std::uint64_t waited = waits_.job_ended(took_ns);
  if (trials_.runs()) trials_.ended(now, client_.launches() - launches_at_begin_, closed, waited);
  if (took_ns != 0 && !steps_.has_steps() && hold_others()) settle_item(now, took_ns);
  // Record the time after the gates are open, so that the clients below do not wait for it.
  if (took_ns != 0) {
    client_.slot().job_times.add(took_ns);
    client_.slot().target_total_ns.fetch_add(took_ns, std::memory_order_relaxed);
    steps_.job_ended(now);
    if (has_target()) {
      const bool alone = was_alone(now);
      show_target(law_.ended(now, client_.launches() - launches_at_begin_, alone));
    }
  }
  if (Trace* traced = g_process.trace.load()) {
    if (closed == 0) traced->job_begin(number_, kind_of_job(), now);
    traced->job_end(number_, closed, took_ns != 0 ? began_ns_ : shm::kTraceNoJob);
  }
}

/// `now` may be older than the job: it is the time of the caller's last look at the clock.
void Jobs::close_open_job(std::uint64_t now) noexcept {
  if (open_ == 0) return;
  now = std::max(now, began_ns_);
  if (window_ns_ != 0) return close_window(now);
  if (closed_ns_ != 0) return;
  close_gates(now);
  end_open(now);
  tell_budget(now);
}

/// While a job is expected, the announcing thread wakes by itself. Otherwise each job checks
/// whether to wake it, because a client for which predictions are worth while may have come.
void Jobs::learn_begin(std::uint64_t now) noexcept {
  if (!predict_ || g_process.announced_jobs.load(std::memory_order_relaxed)) return;
  const bool expecting = prediction_.expected().has_value();
  prediction_.began(now);
  show_predictions();
  if (!prediction_.expected() || (expecting && announcer_.started() && !unheeded_)) return;
  const std::uint64_t lead = lead_if_wanted(client_);
  if (lead != 0 && prediction_.affordable(lead) && needs_early(now)) announcer_.wake();
}

/// Whether gates that close before the next job may pay.
bool Jobs::needs_early(std::uint64_t now) noexcept {
  return has_target() ? !law_.may_begin_open() : trials_.need_early(now);
}

void Jobs::show_predictions() noexcept {
  const Prediction::Tally& tally = prediction_.tally();
  if (tally.made == 0) return;
  shm::Slot& slot = client_.slot();
  slot.predictions.store(tally.made, std::memory_order_relaxed);
  slot.prediction_hits.store(tally.hits, std::memory_order_relaxed);
  slot.prediction_cost_ns.store(tally.paid_ns, std::memory_order_relaxed);
}

std::optional<Jobs::Ahead> Jobs::look_ahead(std::uint64_t now, std::uint64_t lead) noexcept {
  const std::lock_guard lock(mutex_);
  const bool wanted = lead != 0 && !g_process.announced_jobs.load() &&
                      prediction_.affordable(lead) && needs_early(now);
  unheeded_ = !wanted;
  const bool over = prediction_.expected() && now >= prediction_.expected()->lapse_ns;
  if (!wanted || over) {
    if (std::exchange(ahead_, false)) release_below(now, 0);
    wanted ? prediction_.lapsed(now) : prediction_.dropped(now);
    show_predictions();
  }
  const auto& expected = prediction_.expected();
  if (!wanted || !expected) return std::nullopt;
  prediction_.watch();
  if (!ahead_ && now + lead >= expected->start_ns) {
    if (open_ != 0) {
      prediction_.excuse();
    } else {
      end_between(now);
      ahead_ = true;
      prediction_.closed(now);
      hold_below(now, expected->lapse_ns);
    }
  }
  return Ahead{*expected, ahead_};
}

Waits::Sums Jobs::wait_sums() noexcept {
  const std::lock_guard lock(mutex_);
  return waits_.sums(open_ != 0 ? began_ns_ : 0);
}

void Jobs::lapse(std::uint64_t now) noexcept {
  {
    const std::lock_guard lock(mutex_);
    call_off_late(now);
    look_at_budget(now);
  }
  look_at_target(now);
}

/// Calls off a predicted job that has lapsed; also when a job begins after all, because the clients
/// below may have waived the predicted one.
void Jobs::call_off_late(std::uint64_t now) noexcept {
  if (now >= look_ns_) end_between(now);
  const auto& expected = prediction_.expected();
  if (!ahead_ || !expected || now < expected->lapse_ns) return;
  ahead_ = false;
  release_below(now, 0);
  prediction_.lapsed(now);
  show_predictions();
}

void Jobs::begin() noexcept {
  const std::lock_guard lock(mutex_);
  open_explicit();
  begin_held();  // for an announced one of another book
}

/// A transparent job that is open becomes part of the explicit one.
void Jobs::open_explicit(std::uint64_t until_ns) noexcept {
  if (window_ns_ != 0) close_window(base::monotonic_ns());
  open_one(until_ns);
  if (transparent_) close_transparent();
}

void Jobs::hold_for_announced(std::uint64_t until_ns) noexcept {
  const std::lock_guard lock(mutex_);
  open_explicit(until_ns);
  close_without_trial();  // of a transparent job that runs with open gates
  if (open_ == 1) began_ns_ = 0;
}

void Jobs::close_now() noexcept {
  const std::lock_guard lock(mutex_);
  if (!has_target()) close_without_trial();
}

/// Closes the gates of the open job. That is no evidence of when they may close.
void Jobs::close_without_trial() noexcept {
  close_open_job(base::monotonic_ns());
  trials_.skip();
}

void Jobs::none_has_begun(std::uint64_t until_ns) noexcept {
  const std::lock_guard lock(mutex_);
  if (open_ == 1) say_until(until_ns);
}

void Jobs::announced_begins() noexcept {
  const std::lock_guard lock(mutex_);
  begin_held();
}

/// The gates may be closed for jobs of which none has begun: now one has.
void Jobs::begin_held() noexcept {
  say_until(0);
  if (began_ns_ != 0) return;
  began_ns_ = base::monotonic_ns();
  waits_.job_begins();
  launches_at_begin_ = client_.launches();
  must_close(began_ns_, true, 0);
  tell_budget(began_ns_);
  budget_.began(began_ns_);
  window_in_item(true, began_ns_);
}

/// Tells the clients below when a job that has not begun lapses, so that they need not rely on this
/// process until then.
void Jobs::say_until(std::uint64_t until_ns) noexcept {
  client_.slot().early_hold_until_ns.store(until_ns);
}

void Jobs::end() noexcept {
  const std::lock_guard lock(mutex_);
  close_one();
}

void Jobs::open_transparent(std::uint64_t kind) noexcept {
  if (transparent_.exchange(true)) return;
  ended_.clear();
  launches_at_last_poll_ = client_.launches();
  open_one(0, kind);
  if (!ends_matter()) return;
  counted_ = true;
  g_process.open_jobs.fetch_add(1, std::memory_order_relaxed);
  began_.store(true, std::memory_order_relaxed);
  poller_.wake();
}

bool Jobs::hold_others() const noexcept { return client_.priority() > 0; }

/// They show whether the client is bound by the GPU, for the law and for turns below others.
bool Jobs::waits_matter() const noexcept { return hold_others() || client_.may_be_held(); }

/// True also after jobs became explicit, because a transparent job that began before has no other
/// end.
bool Jobs::need_polling() const noexcept {
  return ends_matter() && (transparent_.load() || any_stalled_.load());
}

bool Jobs::need_slow_polling() const noexcept {
  return waited_.load() && transparent_.load() && !ends_matter();
}

bool Jobs::ends_matter() const noexcept { return hold_others() || client_.takes_turns(); }

void Jobs::close_transparent(bool by_wait, std::uint64_t at_ns) noexcept {
  transparent_.store(false);
  waited_.store(false);
  if (std::exchange(counted_, false)) g_process.open_jobs.fetch_sub(1, std::memory_order_relaxed);
  g_process.forget_remembered();
  close_one(by_wait, at_ns);
}

void Jobs::touch(Stream& stream, std::uint64_t kind) noexcept {
  if (g_process.explicit_jobs.load()) return stream.pools->channels.note_known();
  const std::lock_guard lock(mutex_);
  if (!stream.lives.load()) return;
  stream.touched = g_process.version.load();
  const std::uint64_t now = ends_matter() ? base::monotonic_ns() : 0;
  stream.given_ns = now;
  if (stalled_.has(stream) && stays_stalled(stream)) return;
  open_transparent(kind);
  if (hold_others()) steps_.given(kind, now);
  if (!busy_.has(stream)) busy_.add(stream);
  stream.pools->channels.note(busy_.size() + stalled_.size());
}

void Jobs::touch_host_copy() noexcept {
  const std::lock_guard lock(mutex_);
  if (g_process.explicit_jobs.load()) return;
  open_transparent();
  if (hold_others()) steps_.given(0, base::monotonic_ns());
}

void Jobs::begin_anew() noexcept {
  const std::lock_guard lock(mutex_);
  if (transparent_) close_transparent();
}

void Jobs::forget(Stream& stream) noexcept {
  const std::lock_guard lock(mutex_);
  stream.lives.store(false);
  StreamList::remove(stream);
}

}  // namespace sluice::intercept
