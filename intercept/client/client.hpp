#pragma once
#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

#include "intercept/driver/driver.hpp"
#include "intercept/jobs/early_switch.hpp"
#include "intercept/jobs/jobs.hpp"
#include "intercept/pacing/pacer.hpp"
#include "shm/board.hpp"
#include "shm/policy.hpp"

namespace sluice::intercept {

[[nodiscard]] bool is_under_mps(CUdevice device) noexcept;

/// What a client needs to come back to its slot.
struct Seat {
  shm::Board& board;
  int slot;
  std::uint32_t generation;
};

/// This process on one device: its slot, its gate, its jobs. Made at attach and never destroyed,
/// because threads of the program may launch until the very end of the process.
class Client {
 public:
  Client(const Seat& seat, CUdevice device, shm::Policy policy) noexcept;

  [[nodiscard]] const Seat& seat() const noexcept { return seat_; }
  [[nodiscard]] shm::Slot& slot() const noexcept { return slot_; }
  [[nodiscard]] CUdevice device() const noexcept { return device_; }
  [[nodiscard]] Jobs& jobs() noexcept { return jobs_; }
  [[nodiscard]] Pacer& pacer() noexcept { return pacer_; }
  [[nodiscard]] EarlySwitch& early_switch() noexcept { return early_switch_; }

  [[nodiscard]] bool simulated() const noexcept { return simulated_scale_ != 0; }
  /// Real time per time of the GPU.
  [[nodiscard]] double time_scale() const noexcept { return simulated() ? simulated_scale_ : 1; }
  /// Clients of an MPS daemon use the device at the same time; others take turns.
  [[nodiscard]] bool under_mps() const noexcept { return under_mps_; }
  [[nodiscard]] std::uint64_t to_real_ns(std::uint64_t gpu_ns) const noexcept {
    return static_cast<std::uint64_t>(static_cast<double>(gpu_ns) * time_scale());
  }

  /// For the notice thread: whether those below were told of a job that is predicted.
  [[nodiscard]] bool& told_slack() noexcept { return told_slack_; }

  /// The policy in force.
  [[nodiscard]] shm::Policy policy() const noexcept {
    return shm::Policy::unpack(policy_.load(std::memory_order_relaxed));
  }

  /// Puts the requested policy of the board in force; for any thread, and the watcher's in each
  /// tick. Allocation-free. Launches under way end under the policy that they began with.
  void take_policy() noexcept;

  /// The device cannot wait on the gate: from now on event:2 is in force instead.
  void fall_back() noexcept;

  /// Whether this client obeys its gate. False after failing open.
  [[nodiscard]] bool obeys() const noexcept { return obeys_.load(std::memory_order_relaxed); }
  void set_obeys(bool obeys) noexcept { obeys_.store(obeys); }

  /// The hot path: one relaxed load of this client's own gate word.
  [[nodiscard]] bool gate_closed() const noexcept {
    return slot_.gate.load(std::memory_order_relaxed) != 0;
  }

  /// Whether a client of higher priority lives on the device. Else no job can close our gate.
  [[nodiscard]] bool outranked() const noexcept {
    return slot_.outranked.load(std::memory_order_relaxed) != 0;
  }

  /// Whether launches are to be spaced by waits, or their lengths learned.
  [[nodiscard]] bool must_pace() const noexcept {
    return (outranked() || learning_.load(std::memory_order_relaxed)) && obeys() &&
           policy().kind >= shm::PolicyKind::kSync;
  }
  void set_learning(bool learning) noexcept { learning_.store(learning); }

  /// A number that stays the same while no other client of the device runs a job; nothing while
  /// one does.
  [[nodiscard]] std::optional<std::uint64_t> others_quiet() const noexcept;

  /// Whether graphs captured now are worth their wait nodes: graphs live long, so a best-effort
  /// client's always are; those of one of higher priority only if somebody outranks it already.
  /// Decided at the first capture, because a later capture of the same code must be the same graph.
  [[nodiscard]] bool captures_waits() noexcept {
    std::call_once(captures_waits_decided_, [this] {
      captures_waits_ = shm::SlotInfo::unpack(slot_.info.load()).priority == 0 ||
                        slot_.outranked.load(std::memory_order_relaxed) != 0;
    });
    return captures_waits_;
  }

  /// Counts a launch that goes to the driver now.
  void count_launch(Entry entry) noexcept {
    const shm::Count count = !obeys() ? shm::Count::kBypassFailedOpen
                             : policy().kind == shm::PolicyKind::kNone
                                 ? shm::Count::kBypassPolicyNone
                                 : shm::Count::kGated;
    counter(entry, count).fetch_add(1);
  }

  [[nodiscard]] shm::Word& counter(Entry entry, shm::Count count) noexcept {
    return slot_.entries[static_cast<std::size_t>(entry)][count];
  }

  /// Whether launches that began under `policy` are still under it.
  [[nodiscard]] bool is_under(shm::Policy policy) const noexcept {
    return policy_.load(std::memory_order_relaxed) == policy.pack();
  }

  /// Holds the calling thread while the gate is closed and the policy holds on the host.
  void hold(Entry entry) noexcept;

  /// A wait on the driver outlasted its bound. The program may be waiting for its own later
  /// launch, so this client runs ungated from now on.
  void give_up_waiting(const char* what) noexcept;

 private:
  Seat seat_;
  shm::Slot& slot_;
  CUdevice device_;
  double simulated_scale_;  ///< 0 on a real GPU.
  bool under_mps_;
  std::atomic<std::uint64_t> policy_;
  std::atomic<bool> obeys_{false};
  std::atomic<bool> learning_;
  std::atomic<bool> cannot_wait_{false};  ///< The device refuses waits on the gate.
  std::once_flag captures_waits_decided_;
  bool captures_waits_ = false;
  bool told_slack_ = false;
  Jobs jobs_;
  Pacer pacer_;
  EarlySwitch early_switch_;
};

}  // namespace sluice::intercept
