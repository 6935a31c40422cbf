#pragma once
#include <cstdint>
#include <string_view>

#include "server/training/mode.hpp"

namespace sluice::server::training {

/// What is to be done with the trainer.
enum class Action : std::uint8_t {
  kNothing,
  kLaunch,   ///< Start the process of the current job.
  kSleep,    ///< shm::MemoryOrder::kSleep
  kRestore,  ///< shm::MemoryOrder::kEpoch
  kResume,   ///< Let it train again.
  kKill,     ///< SIGKILL, because the mode says so. The job begins anew later.
  kEnd,      ///< SIGKILL, because it did not obey in time. The job has failed.
};

/// How the process of a trainer ended.
enum class TrainerEnd : std::uint8_t {
  kFinished,  ///< Or failed, or was ended for good: the job is over.
  kKilled,    ///< By SIGKILL, whoever sent it: the job begins anew.
};

/// The modes as a state machine. It knows no clock, no process and no board: each event carries its
/// time in ns, and returns what is to be done. Not thread-safe.
class Control {
 public:
  /// wedged_ns: a trainer that has not obeyed an order for so long is ended.
  Control(Mode mode, std::uint64_t wedged_ns) : mode_(mode), wedged_ns_(wedged_ns) {}

  /// The first request of a busy period has arrived. obeys: the trainer knows orders.
  [[nodiscard]] Action inference_wants(std::uint64_t now_ns, bool obeys);
  /// The trainer knows orders by now. If a busy period began while it did not, it is stopped now;
  /// the requests of that period go on meanwhile.
  [[nodiscard]] Action trainer_knows_orders(std::uint64_t now_ns);
  /// The last request has been answered.
  [[nodiscard]] Action inference_idle();
  /// Whether inference may use the device now.
  [[nodiscard]] bool inference_may_run() const { return trainer_ != Trainer::kStopping; }

  [[nodiscard]] Action job_submitted();
  /// The job is over before its process was started.
  void job_withdrawn() { trainer_ = Trainer::kNone; }
  /// The order of kSleep or kRestore has been obeyed.
  [[nodiscard]] Action trainer_obeyed();
  [[nodiscard]] Action trainer_ended(TrainerEnd how);

  /// When time_passed() must be called; ~0: no time.
  [[nodiscard]] std::uint64_t next_ns() const;
  [[nodiscard]] Action time_passed(std::uint64_t now_ns);

  [[nodiscard]] Mode mode() const { return mode_; }
  /// For people: none, waits, runs, stopping, sleeps or ending.
  [[nodiscard]] std::string_view state() const;
  /// Whether an order or a kill is on its way to the trainer.
  [[nodiscard]] bool stopping() const { return trainer_ == Trainer::kStopping; }

 private:
  enum class Trainer : std::uint8_t {
    kNone,   ///< There is no job.
    kWaits,  ///< Has no process yet, or none any more.
    kRuns,
    kStopping,  ///< Has an order to stop, or a SIGKILL. Inference waits.
    kSleeps,    ///< Has obeyed.
    kEnding,    ///< Was killed because it did not obey. Inference goes on.
  };
  [[nodiscard]] bool may_launch() const { return !busy_ || !is_task_switch(mode_); }
  [[nodiscard]] Action launch_or_wait();

  Mode mode_;
  std::uint64_t wedged_ns_;
  Trainer trainer_ = Trainer::kNone;
  bool busy_ = false;
  std::uint64_t stopping_since_ns_ = 0;
};

}  // namespace sluice::server::training
