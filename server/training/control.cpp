#include "server/training/control.hpp"

#include <utility>

namespace sluice::server::training {

Action Control::inference_wants(std::uint64_t now_ns, bool obeys) {
  busy_ = true;
  if (!is_task_switch(mode_) || trainer_ != Trainer::kRuns) return Action::kNothing;
  // A program that knows no orders would fail at the first refused launch. The gate holds it.
  if (mode_ != Mode::kTaskSwitchL3 && !obeys) return Action::kNothing;
  trainer_ = Trainer::kStopping;
  stopping_since_ns_ = now_ns;
  if (mode_ == Mode::kTaskSwitchL3) return Action::kKill;
  return mode_ == Mode::kTaskSwitchL1 ? Action::kSleep : Action::kRestore;
}

Action Control::trainer_knows_orders(std::uint64_t now_ns) {
  const bool missed = busy_ && mode_ != Mode::kTaskSwitchL3;
  return missed ? inference_wants(now_ns, true) : Action::kNothing;
}

Action Control::inference_idle() {
  busy_ = false;
  if (trainer_ == Trainer::kWaits) return launch_or_wait();
  if (trainer_ != Trainer::kSleeps) return Action::kNothing;
  trainer_ = Trainer::kRuns;
  return Action::kResume;
}

Action Control::launch_or_wait() {
  trainer_ = may_launch() ? Trainer::kRuns : Trainer::kWaits;
  return may_launch() ? Action::kLaunch : Action::kNothing;
}

std::string_view Control::state() const {
  switch (trainer_) {
    case Trainer::kNone:
      return "none";
    case Trainer::kWaits:
      return "waits";
    case Trainer::kRuns:
      return "runs";
    case Trainer::kStopping:
      return "stopping";
    case Trainer::kSleeps:
      return "sleeps";
    case Trainer::kEnding:
      return "ending";
  }
  return "?";
}

Action Control::job_submitted() { return launch_or_wait(); }

Action Control::trainer_obeyed() {
  if (trainer_ != Trainer::kStopping) return Action::kNothing;
  // An order is not taken back before it is obeyed: some launches may have been refused already,
  // and the trainer must find the order that explains them.
  trainer_ = busy_ ? Trainer::kSleeps : Trainer::kRuns;
  return busy_ ? Action::kNothing : Action::kResume;
}

Action Control::trainer_ended(TrainerEnd how) {
  const bool given_up = trainer_ == Trainer::kEnding;
  trainer_ = Trainer::kNone;
  return how == TrainerEnd::kKilled && !given_up ? launch_or_wait() : Action::kNothing;
}

std::uint64_t Control::next_ns() const {
  return trainer_ == Trainer::kStopping ? stopping_since_ns_ + wedged_ns_ : ~std::uint64_t{0};
}

Action Control::time_passed(std::uint64_t now_ns) {
  if (now_ns < next_ns()) return Action::kNothing;
  trainer_ = Trainer::kEnding;
  return Action::kEnd;
}

}  // namespace sluice::server::training
