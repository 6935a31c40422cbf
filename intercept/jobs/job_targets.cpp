// Jobs with a target: when their gates close, and what they take alone.
#include <optional>

#include "intercept/driver/process.hpp"
#include "intercept/jobs/before_job.hpp"
#include "intercept/jobs/jobs.hpp"
#include "shm/target.hpp"
#include "shm/target_counts.hpp"

namespace sluice::intercept {

bool Jobs::has_target() const noexcept { return law_.target().any() && hold_others(); }

std::uint64_t Jobs::look_at_target(std::uint64_t now) noexcept {
  const std::lock_guard lock(mutex_);
  if (now < look_ns_) return look_ns_;
  if (window_ns_ != 0) {
    close_window(now);
    return look_ns_;
  }
  if (between_) {
    end_between(now);
    return look_ns_;
  }
  const std::uint64_t launches = client_.launches() - launches_at_begin_;
  const TargetLaw::Step step =
      trials_.runs() ? trials_.look(now, launches) : law_.look(now, launches);
  look_ns_ = step.look_ns;
  if (step.close) close_open_job(now);
  return look_ns_;
}

bool Jobs::may_begin_open() noexcept {
  const std::lock_guard lock(mutex_);
  return has_target() && law_.may_begin_open();
}

void Jobs::take_target() noexcept {
  shm::Slot& slot = client_.slot();
  const std::uint64_t requested = client_.shared().requested_target.load();
  const auto target = shm::Target::unpack(requested);
  if (slot.target.load() == requested || !target.valid()) return;
  const std::lock_guard lock(mutex_);
  law_.set(target.of_steps ? shm::Target{} : target);
  slot.target.store(requested);
  shm::begin_target(slot);
  // The open job has the new target. One that the law has left open closes now.
  if (open_ != 0 && closed_ns_ == 0) look_ns_ = 0;
  if (trials_.runs()) close_without_trial();
  show_target(std::nullopt);
  steps_.set(target);
}

void Jobs::show_target(std::optional<bool> in_time) noexcept {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  shm::Slot& slot = client_.slot();
  slot.target_ns.store(law_.limit_ns(), kRelaxed);
  slot.alone_ns.store(law_.alone_ns(), kRelaxed);
  slot.target_state.store(static_cast<std::uint32_t>(law_.state()), kRelaxed);
  if (!in_time) return;
  slot.target_jobs.fetch_add(1, kRelaxed);
  if (*in_time) slot.target_kept.fetch_add(1, kRelaxed);
}

/// Of the job that ends. Those outside Sluice were counted some time ago.
bool Jobs::was_alone(std::uint64_t now) noexcept {
  const Seat& seat = client_.seat();
  if (Quiet::outside(seat.board, seat.slot)) law_.somebody_outside(now);
  return quiet_.end(seat.board, seat.slot, now);
}

/// Between the jobs that show what one takes alone: what runs below has to come to its gate before
/// such a job begins.
bool Jobs::holds_for_reference() const noexcept {
  return has_target() && law_.wants_quiet() && !g_process.announced_jobs.load() &&
         !client_.seat().reader() && has_lower_clients(client_);
}

}  // namespace sluice::intercept
