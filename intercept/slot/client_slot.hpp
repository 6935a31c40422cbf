#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "intercept/driver/driver.hpp"
#include "intercept/slot/orders.hpp"
#include "shm/board.hpp"
#include "shm/give.hpp"
#include "shm/policy.hpp"
#include "shm/trace_format.hpp"

namespace sluice::intercept {

/// The place of a client on the board.
///
/// A reader can only read the board: `writable` is null, and `words` are in private memory. The
/// watcher reports them to the node service, which writes for the reader (shm/report.hpp). For
/// other clients, `words` are the slot itself. So what others write to the slot is read from
/// shared(), and what this client says as its owner is written to `words`.
struct Seat {
  const shm::Board& board;
  shm::Board* writable;
  shm::Slot& words;
  int slot;
  std::uint32_t generation;

  [[nodiscard]] const shm::Slot& shared() const noexcept {
    return board.slots[static_cast<std::size_t>(slot)];
  }
  [[nodiscard]] bool reader() const noexcept { return writable == nullptr; }
};

[[nodiscard]] bool is_under_mps(CUdevice device) noexcept;

/// The slot of this process on one device: its gate, its policy, and whether the client obeys.
class ClientSlot {
 public:
  ClientSlot(const Seat& seat, CUdevice device, shm::Policy policy) noexcept;

  [[nodiscard]] const Seat& seat() const noexcept { return seat_; }
  /// What this client says as the owner of its slot.
  [[nodiscard]] shm::Slot& slot() const noexcept { return slot_; }
  /// What others say to it: gate, priority, slack, requests.
  [[nodiscard]] const shm::Slot& shared() const noexcept { return shared_; }
  [[nodiscard]] CUdevice device() const noexcept { return device_; }
  [[nodiscard]] std::uint8_t priority() const noexcept {
    return shm::SlotInfo::unpack(shared_.info.load()).priority;
  }

  /// What a broker asks of this client.
  [[nodiscard]] Orders& orders() noexcept { return orders_; }

  [[nodiscard]] bool simulated() const noexcept { return simulated_scale_ != 0; }
  /// Real time divided by GPU time: 1 on a real GPU.
  [[nodiscard]] double time_scale() const noexcept { return simulated() ? simulated_scale_ : 1; }
  /// Clients of an MPS daemon use the device at the same time; other clients take turns.
  [[nodiscard]] bool under_mps() const noexcept { return under_mps_; }
  [[nodiscard]] std::uint64_t to_real_ns(std::uint64_t gpu_ns) const noexcept {
    return static_cast<std::uint64_t>(static_cast<double>(gpu_ns) * time_scale());
  }

  /// The policy in force.
  [[nodiscard]] shm::Policy policy() const noexcept {
    return shm::Policy::unpack(policy_.load(std::memory_order_relaxed));
  }
  /// Whether `policy` is still in force.
  [[nodiscard]] bool is_under(shm::Policy policy) const noexcept {
    return policy_.load(std::memory_order_relaxed) == policy.pack();
  }
  /// Puts the policy that the board requests in force. Any thread may call this; the watcher does
  /// so in each tick. Allocates nothing. A launch under way ends under the policy that it began
  /// with.
  void take_policy() noexcept;
  /// For a device that cannot wait on the gate: from now on event:2 is in force instead of a device
  /// policy.
  void fall_back() noexcept;

  /// How much longer its jobs and steps may take for the clients below it, in 1/1000 of their time.
  /// `sluice set` may change it at any time.
  [[nodiscard]] std::uint32_t give() const noexcept {
    return shm::unpack_give(shared_.requested_give.load(std::memory_order_relaxed));
  }

  /// Whether it says so itself, and not only the default holds.
  [[nodiscard]] bool says_what_it_gives() const noexcept {
    return shared_.requested_give.load(std::memory_order_relaxed) != 0;
  }

  /// Whether this client obeys its gate: false until its slot is live, and at exit.
  [[nodiscard]] bool obeys() const noexcept { return obeys_.load(std::memory_order_relaxed); }
  void set_obeys(bool obeys) noexcept;

  /// The hot path: one relaxed load of this client's own gate word.
  [[nodiscard]] bool gate_closed() const noexcept {
    return shared_.gate.load(std::memory_order_relaxed) != 0;
  }
  /// Whether a client of higher priority lives on the device. If none does, no job can close this
  /// client's gate.
  [[nodiscard]] bool outranked() const noexcept {
    return (shared_.outranked.load(std::memory_order_relaxed) & shm::kOutranked) != 0;
  }

  /// Whether this client takes turns with others of its priority.
  [[nodiscard]] bool takes_turns() const noexcept {
    return (shared_.outranked.load(std::memory_order_relaxed) & shm::kTakesTurns) != 0;
  }
  /// Whether the gate may close: for a client of higher priority, or for those whose turn it is.
  [[nodiscard]] bool may_be_held() const noexcept {
    const std::uint32_t why = shm::kOutranked | shm::kTakesTurns;
    return (shared_.outranked.load(std::memory_order_relaxed) & why) != 0;
  }

  /// Whether launch durations are still being learned.
  [[nodiscard]] bool learning() const noexcept { return learning_.load(std::memory_order_relaxed); }
  void set_learning(bool learning) noexcept;
  /// Whether the policy in force spaces launches while the gate may close.
  [[nodiscard]] bool may_pace() const noexcept { return obeys() && policy().is_spaced(); }
  /// Whether launches must be spaced, or their durations learned, now.
  [[nodiscard]] bool must_pace() const noexcept {
    return (may_be_held() || learning()) && may_pace();
  }

  /// A number that changes whenever another client of the device has run a job; nothing while one
  /// runs.
  [[nodiscard]] std::optional<std::uint64_t> others_quiet() const noexcept;
  /// The same for the clients that this one does not outrank.
  [[nodiscard]] std::optional<std::uint64_t> peers_quiet() const noexcept;
  /// The same as peers_quiet() while a job of this client holds all clients that it outranks; else
  /// nothing. The job ends only after its work, so what it launches runs alone until peers_quiet()
  /// changes.
  [[nodiscard]] std::optional<std::uint64_t> quiet_in_own_job() const noexcept;

  /// Whether a graph that is instantiated now gets waits. Graphs live long, so at priority 0 they
  /// always do; at a higher priority only if the gate may close now.
  [[nodiscard]] bool wants_waits_in_graphs() const noexcept {
    return priority() == 0 || may_be_held();
  }

  /// The counter for a launch that goes to the driver now.
  [[nodiscard]] shm::Count kind_of_launch() const noexcept {
    if (!obeys()) return shm::Count::kBypassUnattached;
    return policy().heeds_gate() ? shm::Count::kGated : shm::Count::kBypassPolicyNone;
  }
  [[nodiscard]] shm::Word& counter(Entry entry, shm::Count count) const noexcept {
    return slot_.entries[static_cast<std::size_t>(entry)][count];
  }
  /// Launches of all entries.
  [[nodiscard]] std::uint64_t launches() const noexcept;

  /// Blocks the calling thread while the gate is closed and the policy holds on the host.
  void hold(Entry entry) noexcept;

  /// Of a reader: the state that the node service shall give the slot, at the next report.
  void wish(shm::SlotState state) noexcept;

  /// Counts a wait on the driver that exceeded its bound, and says so at the first one. Gating goes
  /// on.
  void skipped_wait(shm::TraceHold why) noexcept;

 private:
  template <class Which>
  [[nodiscard]] std::optional<std::uint64_t> quiet(Which which) const noexcept;

  Seat seat_;
  shm::Slot& slot_;
  const shm::Slot& shared_;
  Orders orders_;
  CUdevice device_;
  double simulated_scale_;  ///< 0 on a real GPU.
  bool under_mps_;
  std::atomic<std::uint64_t> policy_;
  std::atomic<bool> obeys_{false};
  std::atomic<bool> learning_;
  std::atomic<bool> cannot_wait_{false};  ///< The device refuses waits on the gate.
};

}  // namespace sluice::intercept
