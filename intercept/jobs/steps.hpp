#pragma once
#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "intercept/jobs/last_values.hpp"
#include "intercept/jobs/step_law.hpp"
#include "intercept/jobs/waits.hpp"
#include "intercept/slot/client_slot.hpp"
#include "intercept/slot/quiet.hpp"

namespace sluice::intercept {

/// The steps of one client (docs/reference/steps.md): finds them in the waits of a job that has no
/// end, and says when the gates below open for a window. Serialised by the caller.
class Steps {
 public:
  /// A job has steps when so many waits have ended one in it, and it is so old.
  static constexpr std::uint64_t kFirst = 16;
  static constexpr std::uint64_t kFirstNs = 100'000'000;
  /// A wait that returns so soon has found its work done.
  static constexpr std::uint64_t kDoneNs = 20'000;
  static constexpr std::uint64_t kShortestNs = 200'000;
  /// A program that has left newer work in flight in so many steps will wait for that, too.
  static constexpr std::uint64_t kInFlight = 4;
  /// So long without a launch, and it is idle. Of GPU time.
  static constexpr std::uint64_t kPauseNs = 1'000'000;
  /// After so many, a program whose steps are of no known kind has none that windows could open in.
  static constexpr std::uint64_t kNeverKnown = 128;

  /// If there is no memory for the law, there are no steps.
  explicit Steps(ClientSlot& client) noexcept;

  /// The part of their time that steps give; 0: the gates open in none. `binds`: see StepLaw.
  void give(double part, bool binds) noexcept;
  [[nodiscard]] StepLaw::Spent take_spent() noexcept {
    return law_ == nullptr ? StepLaw::Spent{} : law_->take_spent();
  }

  /// The target in force, of steps or of jobs.
  void set(shm::Target target) noexcept;

  void job_begins(std::uint64_t now_ns, std::uint64_t launches) noexcept;
  /// `now_ns`: a window that is open ends with the job.
  void job_ended(std::uint64_t now_ns) noexcept;
  /// Whether the program launches on and on, and waits for its work later, so that its job goes on
  /// although the GPU is idle. Not where gates could not open in the steps of the job.
  [[nodiscard]] bool in_flight(std::uint64_t now_ns) const noexcept;
  /// Launches have come until about now.
  void launched(std::uint64_t now_ns) noexcept { launched_ns_ = now_ns; }
  /// A wait for work has returned: `given` is the period of the work.
  void waited(std::uint64_t given) noexcept { waited_ = std::max(waited_, given); }
  /// Work is given. `kind`: names it; 0: a copy.
  void given(std::uint64_t kind, std::uint64_t now_ns) noexcept;

  struct End {
    bool ended = false;    ///< The wait has ended a step.
    bool first = false;    ///< From now on the job has steps.
    bool counted = false;  ///< The job had steps before.
    bool paid = false;     ///< The law of steps gives windows in such steps, and this one has paid.
    /// For how long the gates may open now, or stay open; 0: no window begins.
    std::uint64_t window_ns = 0;
    bool close = false;  ///< The window that is open ends now.
    std::uint64_t kind = 0;
    std::uint64_t began_ns = 0;
    std::uint64_t open_ns = 0;  ///< Of windows, since the step before it ended.
  };
  /// A wait of the program has returned. `launches`: of the client.
  End wait_returned(const Waits::Wait& wait, std::uint64_t now_ns, std::uint64_t launches) noexcept;
  /// Whether the job that is open has some.
  [[nodiscard]] bool has_steps() const noexcept { return has_steps_; }
  /// The budget gives windows of this length, which lengthen jobs and steps by `cost`, in 1/1000;
  /// 0: it gives none.
  void show_budget(std::uint64_t window_ns, std::uint32_t cost) noexcept;
  void window_opened(std::uint64_t now_ns) noexcept { open_since_ns_ = now_ns; }
  void window_closed(std::uint64_t now_ns) noexcept;

 private:
  /// What was given from one end of a step to the next.
  struct Period {
    std::uint64_t number = 0;  ///< Of EventMarks.
    std::uint64_t first_ns = 0;
    StepLaw::Kind kind = 0;
  };
  Period end_period(std::uint64_t now_ns, std::uint64_t launches) noexcept;
  [[nodiscard]] bool ends_step(const Waits::Wait& wait, std::uint64_t now_ns) const noexcept;
  [[nodiscard]] bool was_alone(std::uint64_t now_ns) noexcept;
  [[nodiscard]] bool has_target_of_jobs() const noexcept {
    return target_.any() && !target_.of_steps;
  }
  [[nodiscard]] bool launches_on(std::uint64_t now_ns) const noexcept;
  [[nodiscard]] bool any_after(std::uint64_t period) const noexcept;
  [[nodiscard]] bool all_usual(std::uint64_t after) const noexcept;
  std::uint64_t window(const Period& ended, std::uint64_t now_ns) noexcept;
  void show() noexcept;
  void show_target() noexcept;

  ClientSlot& client_;
  Quiet quiet_;
  std::unique_ptr<StepLaw> law_;
  bool windows_ = false;  ///< The gates may open in steps.
  shm::Target target_;
  std::uint64_t in_flight_ = 0;  ///< Steps that ended with newer work in flight.
  std::uint64_t given_ = 0;      ///< The period of the last work that was given.
  std::uint64_t waited_ = 0;     ///< The last period whose work was waited for.
  std::uint64_t launched_ns_ = 0;

  // The job that is open.
  std::uint64_t began_ns_ = 0;
  std::uint64_t ends_ = 0;  ///< Of steps.
  bool has_steps_ = false;
  std::uint64_t last_end_ns_ = 0;
  std::uint64_t last_ended_ = 0;  ///< The period of the last step that ended.
  LastValues<Period, 8> periods_;
  // Of the period.
  std::uint64_t first_ns_ = 0;
  std::uint64_t first_kind_ = 0;
  std::uint64_t launches_ = 0;  ///< At its begin.

  std::uint64_t open_since_ns_ = 0;  ///< A window is open; 0: none.
  bool stays_ = false;               ///< It does not end with its time.
  std::uint64_t open_ns_ = 0;        ///< Windows since the last end of a step.
  std::uint64_t window_ns_ = 0;      ///< The last one that was given.
  bool anybody_below_ = false;
  bool pays_ = false;  ///< Windows may open in usual steps.
  std::uint64_t budget_window_ns_ = 0;
  std::uint32_t budget_cost_ = 0;
  std::uint64_t jobs_ = 0;  ///< Without steps, since the last one that had some.
};

}  // namespace sluice::intercept
