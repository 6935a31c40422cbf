#pragma once
#include <atomic>
#include <cstdint>
#include <memory>

#include "intercept/jobs/close_law.hpp"
#include "intercept/jobs/target_law.hpp"
#include "intercept/slot/client_slot.hpp"

namespace sluice::intercept {

/// The jobs of one client that close their gates as the CloseLaw says, unless it gives nothing.
/// Serialised by the caller, except closes_at_wait() and on().
class Trials {
 public:
  /// If there is no memory for the law, it is off.
  explicit Trials(ClientSlot& client) noexcept;

  /// What the client gives of its time, in 1/1000; 0: gates close at the first launch.
  void give(std::uint32_t per_mille) noexcept;
  [[nodiscard]] double take_spent() noexcept { return law_ == nullptr ? 0 : law_->take_spent(); }
  void set_overdrawn(bool overdrawn) noexcept {
    if (law_ != nullptr) law_->set_overdrawn(overdrawn);
  }

  using Step = TargetLaw::Step;
  /// A job begins. `kind`: jobs that begin with the same work are alike.
  Step begin(std::uint64_t now_ns, std::uint64_t kind) noexcept;
  /// Instead of begin(), for a job whose gates the law does not close.
  void skip() noexcept {
    runs_ = false;
    closes_at_wait_.store(false);
  }
  /// The same, where something else decides for all jobs. `status` then shows nothing of the law.
  void decide_nothing() noexcept;
  /// The same, for a job whose gates were closed before it.
  void closed_before() noexcept { ++closed_before_; }
  /// Of a job that began with begin(). `launches`: the launches that it has made.
  [[nodiscard]] Step look(std::uint64_t now_ns, std::uint64_t launches) noexcept;
  /// The job that runs() ended. `closed_ns`: when its gates closed; 0: they did not. `waited_ns`:
  /// in calls that wait for the GPU.
  void ended(std::uint64_t now_ns, std::uint64_t launches, std::uint64_t closed_ns,
             std::uint64_t waited_ns) noexcept;

  /// Whether the gates would close at the first launch of the next job, if it is of this kind.
  [[nodiscard]] bool closes_at_first(std::uint64_t kind, std::uint64_t now_ns) const noexcept;
  [[nodiscard]] bool on() const noexcept {
    return law_ != nullptr && gives_.load(std::memory_order_relaxed);
  }
  /// Whether jobs of late were shown to need gates that close at first, so that closing them even
  /// before the job may pay.
  [[nodiscard]] bool need_early(std::uint64_t now_ns) noexcept;
  /// Of a job that began with open gates: whether look() must come in time, and not only some time.
  [[nodiscard]] bool looks_in_time() const noexcept;
  [[nodiscard]] bool runs() const noexcept { return runs_; }
  /// Whether a wait of the program closes the gates of the job that runs.
  [[nodiscard]] bool closes_at_wait() const noexcept {
    return closes_at_wait_.load(std::memory_order_relaxed);
  }

 private:
  void show(const CloseLaw::Status& status) noexcept;

  ClientSlot& client_;
  std::unique_ptr<CloseLaw> law_;
  std::atomic<bool> gives_{false};
  std::atomic<bool> closes_at_wait_{false};
  // The job that runs.
  bool runs_ = false;
  CloseLaw::Decision decision_;
  std::uint64_t began_ns_ = 0;
  std::uint64_t kind_ = 0;
  std::uint64_t neighbours_ = 0;
  std::uint64_t jobs_ = 0;
  std::uint64_t closed_before_ = 0;
  CloseLaw::State state_ = CloseLaw::State::kUnknown;
  bool trying_ = false;
};

}  // namespace sluice::intercept
