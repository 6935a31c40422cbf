// Windows that the budget pays for, while the program is never idle and nothing else gives those
// below anything.
#include <algorithm>

#include "intercept/driver/process.hpp"
#include "intercept/jobs/before_job.hpp"
#include "intercept/jobs/jobs.hpp"
#include "intercept/trace/trace.hpp"

namespace sluice::intercept {

/// A setting of the client, which `sluice set` may change. A target binds alone, unless both are
/// set.
void Jobs::take_give() noexcept {
  const std::uint32_t per_mille = client_.give();
  const double part = per_mille / 1000.0;
  const bool binds = client_.says_what_it_gives();
  const std::lock_guard lock(mutex_);
  if (part == spending_.part() && binds == give_binds_) return;
  spending_.set(part);
  give_binds_ = binds;
  trials_.give(per_mille);
  share_out();
  if (!gives() && trials_.runs()) close_without_trial();
}

/// What each lever may spend from now on.
void Jobs::share_out() noexcept {
  trials_.set_overdrawn(spending_.is_overdrawn());
  law_.set_overdrawn(give_binds_ && (spending_.is_overdrawn() || !gives()));
  budget_.set_part(spending_.left());
  steps_.give(spending_.left(), give_binds_);
}

/// A job ended, or a step. What it cost is known, as far as it will be.
void Jobs::settle_item(std::uint64_t now, std::uint64_t took) noexcept {
  constexpr std::uint64_t kItemsPerShow = 16;
  const StepLaw::Spent steps = steps_.take_spent();
  spending_.spend(Spending::Lever::kClosing, trials_.take_spent() + law_.take_spent());
  spending_.spend(Spending::Lever::kWindows, budget_.take_spent() + steps.windows_ns);
  spending_.spend(Spending::Lever::kOpen, steps.open_ns);
  spending_.ended(now, took);
  share_out();
  if (++items_ % kItemsPerShow != 0) return;
  show_given();
  show_waits();
}

void Jobs::show_given() noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  shm::Slot& slot = client_.slot();
  const auto spent = [this](Spending::Lever lever) {
    return static_cast<std::uint32_t>(std::min(spending_.spent(lever), 1.0) * 10'000);
  };
  slot.gives_closing.store(spent(Spending::Lever::kClosing), kRelaxed);
  slot.gives_windows.store(spent(Spending::Lever::kWindows), kRelaxed);
  slot.gives_open.store(spent(Spending::Lever::kOpen), kRelaxed);
  slot.gives_known.store(spending_.is_known() && gives() ? 1 : 0, kRelaxed);
}

void Jobs::show_waits() noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  shm::Slot& slot = client_.slot();
  const Waits::Sums sums = waits_.sums(open_ != 0 ? began_ns_ : 0);
  slot.items.store(items_, kRelaxed);
  slot.items_waited_ns.store(sums.waited_ns, kRelaxed);
  slot.items_ns.store(sums.waited_ns + sums.host_ns, kRelaxed);
}

/// After each change of the gates. A window may outlast its job, and ends with its time.
void Jobs::tell_budget(std::uint64_t now) noexcept {
  using Gates = Budget::Gates;
  if (budget_window_ && window_ns_ == 0 && (closed_ns_ != 0 || now >= window_until_ns_)) {
    budget_.set_gates(Gates::kOpen, std::min(now, window_until_ns_));
    budget_window_ = false;
  }
  const bool closed = closed_ns_ != 0 && window_ns_ == 0;
  budget_.set_gates(budget_window_ ? Gates::kWindow : closed ? Gates::kClosed : Gates::kOpen, now);
}

/// For how long the gates may open now. A target that is kept has its own rule, until the job is
/// late. One that is too tight may be kept by closed gates: a window every second or two makes few
/// jobs late.
std::uint64_t Jobs::budget_pays(bool at_begin, std::uint64_t now) noexcept {
  if (!gives() || !budget_.feeds() || !hold_others() || client_.seat().reader()) return 0;
  const bool has_limit = has_target() && law_.limit_ns() != 0;
  const bool in_time = has_limit && now < began_ns_ + law_.limit_ns();
  if (in_time && law_.state() == shm::TargetState::kKept) return 0;
  const bool may_be_kept = in_time && law_.alone_ns() <= law_.limit_ns();
  const LowerClients lower = lower_clients(client_, now);
  budget_.neighbours(lower.wants ? lower.id : 0, lower.longest_ns, sharers(client_, now));
  return budget_.window_ns(at_begin, now, may_be_kept);
}

/// The job shows nothing of jobs whose gates close as the laws say.
void Jobs::no_sample() noexcept {
  trials_.skip();
  law_.no_sample();
}

/// A job begins in a window: in its own, or in one that the job before it has left.
/// `gates_are_closed`: they were closed before it.
bool Jobs::begin_in_window(bool gates_are_closed, std::uint64_t now) noexcept {
  const bool goes_on = budget_window_ && now < window_until_ns_ && !gates_are_closed;
  const std::uint64_t window = goes_on ? window_until_ns_ - now : budget_pays(true, now);
  if (window == 0 || !announcer_.wake()) return false;
  no_sample();
  if (gates_are_closed) {
    say_until(0);
    open_in_job();
  } else {
    note_begin(now, 0);
    closed_ns_ = now;
    client_.slot().open_job.fetch_add(1);
    if (Trace* traced = g_process.trace.load()) traced->job_begin(number_, kind_of_job(), now);
  }
  budget_window_ = true;
  window_ns_ = now;
  look_ns_ = window_until_ns_ = now + window;
  steps_.window_opened(now);
  if (goes_on) return true;
  client_.slot().steps.windows.fetch_add(1, std::memory_order_relaxed);
  steps_.show_budget(window, budget_.cost());
  return true;
}

/// In a job whose gates are closed: where a step begins, or in the middle of a long one.
void Jobs::window_in_item(bool at_begin, std::uint64_t now) noexcept {
  if (open_ == 0 || began_ns_ == 0 || closed_ns_ == 0 || window_ns_ != 0) return;
  const std::uint64_t window = budget_pays(at_begin, now);
  if (window == 0) return;
  no_sample();
  budget_window_ = true;
  give_window(now, now + window);
  budget_window_ = window_ns_ != 0;
  steps_.show_budget(window, budget_.cost());
}

/// The job may have no end: then the watcher opens the gates, and needs a thread that closes them.
void Jobs::prepare_window(std::uint64_t now) noexcept {
  if (announcer_.started() || !gives() || closed_ns_ == 0) return;
  if (hold_others() && lower_clients(client_, now).wants) announcer_.wake();
}

/// For the watcher, which starts no thread.
void Jobs::look_at_budget(std::uint64_t now) noexcept {
  tell_budget(now);
  if (announcer_.started()) window_in_item(false, now);
  if (!budget_.feeds()) steps_.show_budget(0, 0);
}

}  // namespace sluice::intercept
