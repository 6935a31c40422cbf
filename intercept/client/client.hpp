#pragma once
#include "intercept/client/client_slot.hpp"
#include "intercept/client/gate_memory.hpp"
#include "intercept/jobs/early_switch.hpp"
#include "intercept/jobs/jobs.hpp"
#include "intercept/pacing/pacer.hpp"

namespace sluice::intercept {

/// This process on one device: its slot, its jobs, its pacing. Made at attach and never destroyed,
/// because threads of the program may launch until the process ends.
class Client : public ClientSlot {
 public:
  /// What the clients of a process share.
  struct Shared {
    Streams& streams;
    Worker& poller;
    Worker& announcer;
    bool predict;
  };
  /// `view`: see GateMemory.
  Client(const Seat& seat, CUdevice device, shm::Policy policy, void* view, const Shared& shared)
      : ClientSlot(seat, device, policy),
        memory_(*this, view),
        jobs_(*this, shared.poller, shared.announcer, shared.predict),
        pacer_(*this, memory_, shared.streams, shared.poller),
        early_switch_(*this) {}

  [[nodiscard]] GateMemory& memory() noexcept { return memory_; }
  [[nodiscard]] Jobs& jobs() noexcept { return jobs_; }
  [[nodiscard]] Pacer& pacer() noexcept { return pacer_; }
  [[nodiscard]] EarlySwitch& early_switch() noexcept { return early_switch_; }
  /// Used by the announcing thread: whether the clients below have been told the slack before a
  /// predicted job.
  [[nodiscard]] bool& told_slack() noexcept { return told_slack_; }

 private:
  GateMemory memory_;
  Jobs jobs_;
  Pacer pacer_;
  EarlySwitch early_switch_;
  bool told_slack_ = false;
};

}  // namespace sluice::intercept
