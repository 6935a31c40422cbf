#include "intercept/jobs/jobs.hpp"

#include <algorithm>

#include "base/clock.hpp"
#include "intercept/client/interposer.hpp"
#include "intercept/driver/driver_query.hpp"
#include "intercept/jobs/poller.hpp"
#include "intercept/pacing/capture.hpp"
#include "intercept/trace/trace.hpp"
#include "shm/view.hpp"

namespace sluice::intercept {

constinit std::atomic<bool> g_explicit_jobs{false};
constinit std::atomic<bool> g_announced_jobs{false};
constinit thread_local Jobs::Last Jobs::t_last{nullptr, nullptr, 0};

namespace {

/// Jobs of a client are counted from 1; the counter is odd while one runs.
std::uint64_t number_of(const shm::Slot& slot) noexcept { return (slot.job.load() + 1) / 2; }

/// An address that is different for each thread, to tell their default streams apart.
const void* this_thread() noexcept {
  static constinit thread_local char mark = 0;
  return &mark;
}

}  // namespace

void Jobs::open_one(std::uint64_t until_ns) noexcept {
  if (open_++ != 0) return;
  began_ns_ = base::monotonic_ns();
  call_off_late(began_ns_);
  if (std::exchange(ahead_, false)) {
    say_until(until_ns);
  } else {
    hold_below(began_ns_, until_ns);
  }
  // After the gates are closed: what is learned is for the next job.
  if (hold_others()) learn_begin(began_ns_);
}

/// `until_ns` is not 0 where no job has begun yet. It is said first: this process may be stopped as
/// soon as the gates are closed.
void Jobs::hold_below(std::uint64_t now, std::uint64_t until_ns) noexcept {
  auto& slot = board_.slots[static_cast<std::size_t>(slot_)];
  slot.job_since_ns.store(now);
  say_until(until_ns);
  shm::BoardView view(board_);
  shm::begin_job(view, slot_);
  if (Trace* traced = trace()) {
    traced->job_begin(
        number_of(slot),
        g_explicit_jobs.load() ? shm::TraceJob::kExplicit : shm::TraceJob::kTransparent, now);
  }
}

void Jobs::close_one() noexcept {
  if (open_ == 0 || --open_ != 0) return;
  const std::uint64_t now = base::monotonic_ns();
  prediction_.ended(now);
  release_below(began_ns_ == 0 ? 0 : std::max<std::uint64_t>(now - began_ns_, 1));
}

/// `took_ns` is 0 where there was no job.
void Jobs::release_below(std::uint64_t took_ns) noexcept {
  auto& slot = board_.slots[static_cast<std::size_t>(slot_)];
  const std::uint64_t job = number_of(slot);
  const std::uint64_t since = slot.job_since_ns.load(std::memory_order_relaxed);
  shm::BoardView view(board_);
  view.count_held(slot_);
  shm::end_job(view, slot_);
  // After the gates are open: those below need not wait for a note to people.
  if (took_ns != 0) slot.job_times.add(took_ns);
  if (Trace* traced = trace()) {
    traced->job_end(job, since, took_ns != 0 ? began_ns_ : shm::kTraceNoJob);
  }
}

void Jobs::learn_begin(std::uint64_t now) noexcept {
  Interposer& process = Interposer::instance();
  if (!process.config().predict || g_announced_jobs.load(std::memory_order_relaxed)) return;
  const bool expecting = prediction_.expected().has_value();
  prediction_.began(now);
  show_predictions();
  if (prediction_.expected()) process.expect_job(slot_, prediction_, !expecting);
}

void Jobs::show_predictions() noexcept {
  const Prediction::Tally& tally = prediction_.tally();
  if (tally.made == 0) return;
  auto& slot = board_.slots[static_cast<std::size_t>(slot_)];
  slot.predictions.store(tally.made, std::memory_order_relaxed);
  slot.prediction_hits.store(tally.hits, std::memory_order_relaxed);
  slot.prediction_cost_ns.store(tally.paid_ns, std::memory_order_relaxed);
}

std::optional<Jobs::Ahead> Jobs::look_ahead(std::uint64_t now, std::uint64_t lead) noexcept {
  const std::lock_guard lock(mutex_);
  const bool wanted = lead != 0 && !g_announced_jobs.load() && prediction_.affordable(lead);
  const bool over = prediction_.expected() && now >= prediction_.expected()->lapse_ns;
  if (!wanted || over) {
    if (std::exchange(ahead_, false)) release_below(0);
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
      ahead_ = true;
      prediction_.closed(now);
      hold_below(now, expected->lapse_ns);
    }
  }
  return Ahead{*expected, ahead_};
}

void Jobs::lapse(std::uint64_t now) noexcept {
  const std::lock_guard lock(mutex_);
  call_off_late(now);
}

/// Also when a job begins after all: those below may have waived the one that was expected.
void Jobs::call_off_late(std::uint64_t now) noexcept {
  const auto& expected = prediction_.expected();
  if (!ahead_ || !expected || now < expected->lapse_ns) return;
  ahead_ = false;
  release_below(0);
  prediction_.lapsed(now);
  show_predictions();
}

void Jobs::begin() noexcept {
  const std::lock_guard lock(mutex_);
  open_explicit();
}

/// What was found to be a job is part of this one.
void Jobs::open_explicit(std::uint64_t until_ns) noexcept {
  open_one(until_ns);
  if (transparent_) close_transparent();
}

void Jobs::hold_for_announced(std::uint64_t until_ns) noexcept {
  const std::lock_guard lock(mutex_);
  open_explicit(until_ns);
  if (open_ == 1) began_ns_ = 0;
}

void Jobs::none_has_begun(std::uint64_t until_ns) noexcept {
  const std::lock_guard lock(mutex_);
  if (open_ == 1) say_until(until_ns);
}

void Jobs::announced_begins() noexcept {
  const std::lock_guard lock(mutex_);
  say_until(0);
  if (began_ns_ == 0) began_ns_ = base::monotonic_ns();
}

/// So that those below need not trust that this process runs on until then.
void Jobs::say_until(std::uint64_t until_ns) noexcept {
  board_.slots[static_cast<std::size_t>(slot_)].early_hold_until_ns.store(until_ns);
}

void Jobs::end() noexcept {
  const std::lock_guard lock(mutex_);
  close_one();
}

void Jobs::open_transparent() noexcept {
  if (transparent_) return;
  transparent_ = true;
  launches_at_last_poll_ = launches();
  open_one();
  if (hold_others()) wake_poller();
}

bool Jobs::hold_others() const noexcept {
  const auto& slot = board_.slots[static_cast<std::size_t>(slot_)];
  return shm::SlotInfo::unpack(slot.info.load()).priority > 0;
}

bool Jobs::need_polling() const noexcept {
  const auto& slot = board_.slots[static_cast<std::size_t>(slot_)];
  return hold_others() && !g_explicit_jobs.load() && shm::is_active(slot.job.load());
}

void Jobs::close_transparent() noexcept {
  transparent_ = false;
  epoch_.fetch_add(1);
  close_one();
}

Jobs::Busy* Jobs::find(CUstream stream) noexcept {
  const void* thread = stream == CU_STREAM_PER_THREAD ? this_thread() : nullptr;
  const auto found = std::find_if(busy_.begin(), busy_.end(), [&](const Busy& busy) {
    return busy.stream == stream && busy.thread == thread;
  });
  return found == busy_.end() ? nullptr : &*found;
}

void Jobs::touch_slow(CUstream stream) noexcept {
  CUcontext context = nullptr;
  driver().cuCtxGetCurrent(&context);
  const std::lock_guard lock(mutex_);
  const std::uint64_t epoch = epoch_.load();
  t_last = {this, stream, epoch};
  if (g_explicit_jobs.load()) return;
  if (Busy* busy = find(stream)) {
    busy->epoch = epoch;
  } else {
    const void* thread = stream == CU_STREAM_PER_THREAD ? this_thread() : nullptr;
    busy_.push_back({stream, thread, context, epoch, nullptr, false});
  }
  open_transparent();
}

void Jobs::touch_host_copy() noexcept {
  const std::lock_guard lock(mutex_);
  if (!g_explicit_jobs.load()) open_transparent();
}

void Jobs::mark_per_thread() noexcept {
  if (g_explicit_jobs.load(std::memory_order_relaxed) || !hold_others()) return;
  CUevent marker = nullptr;
  CUcontext context = nullptr;
  driver().cuCtxGetCurrent(&context);
  {
    const std::lock_guard lock(mutex_);
    Busy* busy = find(CU_STREAM_PER_THREAD);
    if (busy == nullptr) {  // since the touch a poll has found what was given before it done
      busy_.push_back(
          {CU_STREAM_PER_THREAD, this_thread(), context, epoch_.load(), nullptr, false});
      busy = &busy_.back();
      open_transparent();
    }
    busy->marking = true;
    const auto spare = std::find_if(spare_markers_.begin(), spare_markers_.end(),
                                    [context](const auto& kept) { return kept.first == context; });
    if (busy->marker == nullptr && spare != spare_markers_.end()) {
      busy->marker = spare->second;
      spare_markers_.erase(spare);
    }
    marker = busy->marker;
  }
  const RelaxedCapture relaxed;
  if (marker == nullptr &&
      driver().cuEventCreate(&marker, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) {
    marker = nullptr;
  }
  const bool marked =
      marker != nullptr && driver().cuEventRecord(marker, CU_STREAM_PER_THREAD) == CUDA_SUCCESS;
  const std::lock_guard lock(mutex_);
  Busy* busy = find(CU_STREAM_PER_THREAD);
  if (busy == nullptr) {  // a synchronise of another thread has ended the job meanwhile
    if (marked) spare_markers_.emplace_back(context, marker);
    return;
  }
  busy->marking = false;
  busy->marker = marker;
  // A stream that nobody can ask about must not hold others until max_hold.
  if (!marked) busy_.erase(busy_.begin() + (busy - busy_.data()));
}

std::uint64_t Jobs::launches() const noexcept {
  std::uint64_t sum = 0;
  for (const shm::EntryCounters& entry : board_.slots[static_cast<std::size_t>(slot_)].entries) {
    sum += entry.launches();
  }
  return sum;
}

/// A launch counts itself before it looks at epoch_, and here epoch_ changes before the count is
/// read again: so either the launch is seen here, or it sees the new epoch and begins a job anew.
bool Jobs::nothing_since(std::uint64_t before) noexcept {
  if (launches() != before) return false;
  epoch_.fetch_add(1);
  return launches() == before;
}

void Jobs::put_away(const Busy& busy) noexcept {
  // Where it is being marked, its thread keeps the marker.
  if (busy.marker != nullptr && !busy.marking) {
    spare_markers_.emplace_back(busy.context, busy.marker);
  }
  busy_.erase(busy_.begin() + (&busy - busy_.data()));
}

void Jobs::after_sync_context(std::uint64_t before, CUcontext context) noexcept {
  const std::lock_guard lock(mutex_);
  if (!transparent_ || !nothing_since(before)) return;
  for (std::size_t i = busy_.size(); i-- > 0;) {
    if (busy_[i].context == context) put_away(busy_[i]);
  }
  if (busy_.empty()) close_transparent();
}

void Jobs::after_sync(std::uint64_t before, CUstream stream) noexcept {
  const std::lock_guard lock(mutex_);
  if (!transparent_ || !nothing_since(before)) return;
  if (const Busy* busy = find(stream)) put_away(*busy);
  if (busy_.empty()) close_transparent();
}

bool Jobs::is_done(const Busy& busy) noexcept {
  if (busy.marking || (busy.stream == CU_STREAM_PER_THREAD && busy.marker == nullptr)) return false;
  const DriverQuery question(busy.context, busy.stream);
  if (!question) return false;
  if (busy.marker != nullptr) return driver().cuEventQuery(busy.marker) != CUDA_ERROR_NOT_READY;
  if (driver().cuCtxPushCurrent_v2(busy.context) != CUDA_SUCCESS) return true;
  const CUresult state = driver().cuStreamQuery(busy.stream);
  CUcontext popped = nullptr;
  driver().cuCtxPopCurrent_v2(&popped);
  return state != CUDA_ERROR_NOT_READY;
}

/// Asks with no lock held, so what it was told may be out of date when it has the lock again: work
/// given from the new epoch on shows in Busy::epoch, and launches show in the count.
void Jobs::poll() noexcept {
  if (!hold_others()) return;
  std::uint64_t epoch = 0;
  {
    const std::lock_guard lock(mutex_);
    if (!transparent_) return;
    const bool launching = launches() != launches_at_last_poll_;
    launches_at_last_poll_ = launches();
    // Work behind our own closed gate is not done, and asking about it may block in the driver.
    const auto& slot = board_.slots[static_cast<std::size_t>(slot_)];
    if (launching || syncing_.load() != 0 || slot.gate.load() != 0 || any_capture_open()) return;
    asked_ = busy_;
    epoch = epoch_.fetch_add(1) + 1;
  }
  const RelaxedCapture relaxed;
  for (const Busy& asked : asked_) {
    if (!is_done(asked)) continue;
    const std::lock_guard lock(mutex_);
    const auto same = std::find_if(busy_.begin(), busy_.end(), [&asked](const Busy& busy) {
      return busy.stream == asked.stream && busy.thread == asked.thread;
    });
    if (same != busy_.end() && same->epoch < epoch && !same->marking) put_away(*same);
  }
  const std::lock_guard lock(mutex_);
  if (transparent_ && busy_.empty() && nothing_since(launches_at_last_poll_)) close_transparent();
}

void Jobs::begin_anew() noexcept {
  const std::lock_guard lock(mutex_);
  if (!transparent_) return;
  // What was not marked at priority 0 cannot be asked about; the rest poll() will put away.
  std::erase_if(busy_, [](const Busy& busy) {
    return busy.stream == CU_STREAM_PER_THREAD && busy.marker == nullptr && !busy.marking;
  });
  close_transparent();
}

void Jobs::forget(CUstream stream) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(busy_, [stream](const Busy& busy) { return busy.stream == stream; });
  epoch_.fetch_add(1);
}

void Jobs::forget_context(CUcontext context) noexcept {
  const auto gone = [context](CUcontext of) { return context == nullptr || of == context; };
  const std::lock_guard lock(mutex_);
  std::erase_if(busy_, [gone](const Busy& busy) { return gone(busy.context); });
  std::erase_if(spare_markers_, [gone](const auto& kept) { return gone(kept.first); });
  epoch_.fetch_add(1);
}

}  // namespace sluice::intercept
