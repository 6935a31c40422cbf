#include "intercept/jobs/steps.hpp"

#include <algorithm>
#include <new>
#include <utility>

#include "intercept/driver/process.hpp"
#include "intercept/jobs/before_job.hpp"

namespace sluice::intercept {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;
/// So many jobs without steps, and status says that the program has none.
constexpr std::uint64_t kJobsWithout = 16;
constexpr std::uint64_t kStepsPerShow = 16;

std::uint64_t since(std::uint64_t now, std::uint64_t begin) noexcept {
  return now - std::min(now, begin);
}

std::uint32_t us(std::uint64_t ns) noexcept {
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(ns / 1000, ~std::uint32_t{0}));
}

}  // namespace

Steps::Steps(ClientSlot& client) noexcept
    : client_(client),
      quiet_(client.time_scale()),
      law_(new (std::nothrow) StepLaw(client.time_scale(), Quiet::kOutsideLookNs)) {}

void Steps::give(double part, bool binds) noexcept {
  windows_ = part > 0;
  if (law_ != nullptr) law_->set_part(part, binds);
}

void Steps::set(shm::Target target) noexcept {
  target_ = target;
  if (law_ == nullptr) return;
  law_->set(target.of_steps ? target : shm::Target{});
  show();
  if (target.of_steps && client_.priority() != 0) show_target();
}

void Steps::job_begins(std::uint64_t now, std::uint64_t launches) noexcept {
  began_ns_ = now;
  ends_ = 0;
  has_steps_ = false;
  periods_.clear();
  last_end_ns_ = last_ended_ = 0;
  first_ns_ = first_kind_ = 0;
  open_ns_ = 0;
  launches_ = launches;
}

void Steps::job_ended(std::uint64_t now) noexcept {
  if (open_since_ns_ != 0) window_closed(now);
  if (waited_ < given_ && !launches_on(now)) in_flight_ = 0;  // It does not wait for all.
  if (has_steps_) {
    jobs_ = 0;
  } else if (++jobs_ == kJobsWithout) {
    show();
  }
}

bool Steps::in_flight(std::uint64_t now) const noexcept {
  if (in_flight_ < kInFlight || waited_ >= given_ || !launches_on(now)) return false;
  const bool may_have_windows =
      windows_ && !has_target_of_jobs() && lower_clients(client_, now).id != 0;
  return may_have_windows && (in_flight_ < kNeverKnown || law_->knows_steps());
}

bool Steps::launches_on(std::uint64_t now) const noexcept {
  const auto pause = static_cast<double>(since(now, launched_ns_));
  return now >= launched_ns_ && pause < kPauseNs * client_.time_scale();
}

void Steps::given(std::uint64_t kind, std::uint64_t now) noexcept {
  if (first_ns_ == 0) first_ns_ = now;
  if (first_kind_ == 0) first_kind_ = kind;
  given_ = g_process.event_marks.period();
  launched_ns_ = now;
}

/// A wait that has found its work done ends a step only if no other wait for work of that time has:
/// programs ask for old events before they use a buffer again. And a step has work: a program may
/// wait twice, for the copies of two outputs, say.
bool Steps::ends_step(const Waits::Wait& wait, std::uint64_t now) const noexcept {
  const bool blocked = since(now, wait.since_ns) >= kDoneNs;
  // Two steps that were given before the first wait for one of them are of one period.
  const bool newer = wait.given > last_ended_ || (wait.given == last_ended_ && first_ns_ != 0);
  return law_ != nullptr && wait.given != 0 && first_ns_ + ends_ != 0 && (blocked || newer) &&
         since(now, last_end_ns_) >= kShortestNs && (first_ns_ != 0 || any_after(last_ended_));
}

/// Whether something was given in a period after this one, and its step has not ended.
bool Steps::any_after(std::uint64_t period) const noexcept {
  return std::any_of(periods_.begin(), periods_.end(),
                     [period](const Period& each) { return each.number > period; });
}

Steps::Period Steps::end_period(std::uint64_t now, std::uint64_t launches) noexcept {
  // A graph that was launched names the step better than the first kernel.
  const auto graph = reinterpret_cast<std::uintptr_t>(g_process.last_graph.exchange(nullptr));
  const std::uint64_t made = since(launches, std::exchange(launches_, launches));
  Period period{g_process.event_marks.end_period(), std::exchange(first_ns_, 0), 0};
  period.kind = law_->kind_of(graph != 0 ? graph : first_kind_, made);
  if (period.first_ns == 0) period.first_ns = now;
  first_kind_ = 0;
  return period;
}

Steps::End Steps::wait_returned(const Waits::Wait& wait, std::uint64_t now,
                                std::uint64_t launches) noexcept {
  End end;
  waited(wait.given);
  if (!ends_step(wait, now)) return end;
  if (first_ns_ != 0 && wait.given < given_) ++in_flight_;
  periods_.add(end_period(now, launches));
  // The step was given in the oldest known period that had not ended when the event was recorded.
  Period ended;
  for (const Period& each : periods_) {
    const bool nearer = ended.number == 0 || each.number < ended.number;
    if (each.number >= wait.given && nearer) ended = each;
  }
  end.ended = true;
  end.kind = ended.kind;
  end.began_ns = std::min(now, std::max(std::exchange(last_end_ns_, now), ended.first_ns));
  last_ended_ = std::max(last_ended_, ended.number);
  if (open_since_ns_ != 0) open_ns_ += since(now, std::exchange(open_since_ns_, now));
  end.open_ns = std::exchange(open_ns_, 0);
  const bool had_steps = has_steps_;
  has_steps_ = ++ends_ >= kFirst && since(now, began_ns_) >= kFirstNs;
  end.first = has_steps_ && !had_steps;
  end.counted = has_steps_ && had_steps;
  if (end.first) jobs_ = 0;
  client_.slot().steps.add(since(now, end.began_ns), end.counted);
  if (!end.counted) return end;
  const StayOpen::State staying = law_->staying();
  law_->ended(ended.kind, since(now, end.began_ns), end.open_ns,
              since(now, std::max(wait.since_ns, end.began_ns)), was_alone(now), now);
  end.window_ns = window(ended, now);
  end.paid = pays_ && law_->is_usual(ended.kind);
  end.close = std::exchange(stays_, end.window_ns != 0 && law_->stays_open()) &&
              end.window_ns == 0 && open_since_ns_ != 0;
  if (target_.of_steps) show_target();
  const bool unknown = client_.slot().steps.state.load(kRelaxed) ==
                       static_cast<std::uint32_t>(shm::StepState::kNone);
  if (unknown || ends_ % kStepsPerShow == 0 || law_->staying() != staying) show();
  return end;
}

/// Whether the steps that were given after a period are all usual. It is not known where they begin
/// in the period that has just begun.
bool Steps::all_usual(std::uint64_t after) const noexcept {
  return std::all_of(periods_.begin(), periods_.end(), [&](const Period& each) {
    return each.number <= after || law_->is_usual(each.kind);
  });
}

std::uint64_t Steps::window(const Period& ended, std::uint64_t now) noexcept {
  const LowerClients lower = windows_ ? lower_clients(client_, now) : LowerClients{};
  // Windows in which nobody runs would show that they cost nothing.
  const std::uint64_t below = lower.wants ? lower.id : 0;
  anybody_below_ = lower.id != 0;
  if (below != 0) law_->neighbours(below, lower.narrow);
  pays_ = below != 0 && !has_target_of_jobs();
  if (!pays_ || (open_since_ns_ != 0 && !law_->stays_open())) return 0;
  const bool queued = any_after(ended.number);
  if (!all_usual(ended.number) || (!queued && !law_->is_usual(ended.kind))) return 0;
  const std::uint64_t window_ns = law_->window_ns();
  if (window_ns != 0 && !law_->stays_open()) window_ns_ = window_ns;
  return window_ns;
}

/// Of the step that ends. Those outside Sluice were counted some time ago.
bool Steps::was_alone(std::uint64_t now) noexcept {
  if (!target_.of_steps) return false;
  const Seat& seat = client_.seat();
  if (Quiet::outside(seat.board, seat.slot)) law_->somebody_outside(now);
  return quiet_.end(seat.board, seat.slot, now);
}

void Steps::show_budget(std::uint64_t window, std::uint32_t cost) noexcept {
  budget_cost_ = cost;
  if (std::exchange(budget_window_ns_, window) != window) show();
}

void Steps::window_closed(std::uint64_t now) noexcept {
  const std::uint64_t opened = std::exchange(open_since_ns_, 0);
  open_ns_ += since(now, opened);
}

void Steps::show() noexcept {
  using shm::StepState;
  if (law_ == nullptr) return;
  shm::StepTimes& steps = client_.slot().steps;
  StepState state = StepState::kWindows;
  if (budget_window_ns_ != 0) {
    // The same to everybody else.
  } else if (jobs_ >= kJobsWithout || steps.ended.load(kRelaxed) == 0) {
    state = StepState::kNone;
  } else if (has_target_of_jobs()) {
    state = StepState::kJobs;
  } else if (!law_->knows_steps()) {
    state = StepState::kLearning;
  } else if (!anybody_below_) {
    state = StepState::kNoWindow;
  } else if (law_->staying() != StayOpen::State::kResting) {
    const bool tries = law_->staying() == StayOpen::State::kTrying;
    state = tries ? StepState::kTriesOpen : StepState::kOpen;
  }
  steps.state.store(static_cast<std::uint32_t>(state), kRelaxed);
  const bool budget = budget_window_ns_ != 0;
  steps.window_us.store(us(budget ? budget_window_ns_ : window_ns_), kRelaxed);
  steps.cost.store(budget ? budget_cost_ : law_->cost(), kRelaxed);
  const auto shown = law_->shown();
  for (std::size_t i = 0; i < shown.size(); ++i) {
    shm::StepTimes::Kind& kind = steps.kinds[i];
    kind.name.store(static_cast<std::uint32_t>(shown[i].kind), kRelaxed);
    kind.share.store(shown[i].share, kRelaxed);
    kind.p50_us.store(us(shown[i].p50_ns), kRelaxed);
    kind.p99_us.store(us(shown[i].p99_ns), kRelaxed);
  }
}

void Steps::show_target() noexcept {
  using shm::TargetState;
  shm::Slot& slot = client_.slot();
  const TargetState state = law_->learning() ? TargetState::kLearning
                            : law_->missed() ? TargetState::kMissed
                                             : TargetState::kKept;
  slot.target_state.store(static_cast<std::uint32_t>(state), kRelaxed);
  slot.target_ns.store(law_->limit_ns(), kRelaxed);
  slot.alone_ns.store(law_->alone_ns(), kRelaxed);
  if (law_->last_kept() == StepLaw::Kept::kUncounted) return;
  slot.target_jobs.fetch_add(1, kRelaxed);
  if (law_->last_kept() == StepLaw::Kept::kInTime) slot.target_kept.fetch_add(1, kRelaxed);
}

}  // namespace sluice::intercept
