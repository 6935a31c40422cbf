#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

#include "intercept/driver/process.hpp"
#include "intercept/driver/threads.hpp"
#include "intercept/jobs/before_job.hpp"
#include "intercept/jobs/jobs.hpp"
#include "intercept/pacing/pacer.hpp"
#include "intercept/slot/client_slot.hpp"
#include "intercept/slot/gate_memory.hpp"
#include "intercept/slot/slices.hpp"
#include "intercept/slot/turns.hpp"

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
    Worker& keeper;
    bool predict;
    bool gpu_time;
    void (*look_at_ending_streams)();  ///< Of the whole process; called in each poll().
  };
  /// `view`: see GateMemory.
  Client(const Seat& seat, CUdevice device, shm::Policy policy, void* view, const Shared& shared)
      : ClientSlot(seat, device, policy),
        poller_(shared.poller),
        keeper_(shared.keeper),
        look_at_ending_streams_(shared.look_at_ending_streams),
        event_pools_(shared.poller, under_mps()),
        memory_(*this, view),
        jobs_(*this, shared.poller, shared.announcer, shared.predict),
        pacer_(*this, memory_, shared.streams, shared.poller, shared.gpu_time),
        early_switch_(*this),
        slices_(*this, shared.keeper),
        turns_(*this, memory_.arrivals(), shared.keeper, shared.poller) {}

  /// One step of the polling thread: asks the driver whether the work of transparent jobs is done,
  /// and collects samples of launch durations. Jobs that hold nobody are polled seldom.
  Worker::Sleep poll();
  /// For the watcher: has the keeper relieve a polling thread that the driver blocks.
  void tend_poller(std::uint64_t now_ns) noexcept {
    if (poller_.is_blocked(now_ns)) keeper_.wake();
  }
  void relieve_poller(std::uint64_t now_ns) noexcept { poller_.relieve(now_ns); }
  /// The program has learned that some of its work is done: the next poll looks whether jobs have
  /// ended, whatever the program launches.
  void work_may_be_done() noexcept {
    if (jobs_.need_polling() && !hinted_.exchange(true)) poller_.poke();
  }
  /// Whether work_may_be_done() would change nothing.
  [[nodiscard]] bool end_is_hinted() const noexcept {
    return hinted_.load() || !jobs_.need_polling();
  }

  [[nodiscard]] GateMemory& memory() noexcept { return memory_; }
  [[nodiscard]] Jobs& jobs() noexcept { return jobs_; }
  [[nodiscard]] Pacer& pacer() noexcept { return pacer_; }
  [[nodiscard]] EventPools& event_pools() noexcept { return event_pools_; }
  /// Switches the GPU to this process, in a thread of its own: the driver may block the switch, and
  /// the jobs of other devices are announced meanwhile.
  void switch_early() noexcept {
    switch_wanted_.store(true);
    switcher_.wake();
  }
  [[nodiscard]] Slices& slices() noexcept { return slices_; }
  [[nodiscard]] Turns& turns() noexcept { return turns_; }
  /// Says so if a limit is above what the device has. The limit stays: another device may have
  /// more, and managed memory may exceed every device.
  void warn_of_vain_limit(std::uint64_t bytes) const noexcept;
  /// Used by the announcing thread: tells the clients below the slack before a predicted job, as
  /// tell_slack() does.
  void tell_predicted_slack(std::uint64_t start_ns, std::uint64_t until_ns) noexcept {
    told_slack_ = true;
    tell_slack(*this, start_ns, until_ns);
  }
  /// Makes the slack unlimited again, if it was told.
  void end_predicted_slack() noexcept {
    if (std::exchange(told_slack_, false)) tell_no_job(*this);
  }

 private:
  Worker::Sleep step_switch() noexcept;

  Worker& poller_;  ///< Of this device alone: a driver call for one must not delay another.
  Worker& keeper_;
  void (*look_at_ending_streams_)();
  Worker switcher_{"sluice-switch", [this] { return step_switch(); }};
  EventPools event_pools_;
  std::atomic<bool> switch_wanted_{false};
  std::atomic<bool> hinted_{false};
  std::atomic<std::uint64_t> last_active_ns_{0};
  std::atomic<std::uint64_t> last_sampled_ns_{0};

  GateMemory memory_;
  Jobs jobs_;
  Pacer pacer_;
  EarlySwitch early_switch_;
  Slices slices_;
  Turns turns_;
  bool told_slack_ = false;
};

/// The polling thread of one client. It can start before there is a client, which gets a seat only
/// if the thread exists.
struct Poller {
  std::atomic<Client*> client{nullptr};
  Worker worker{"sluice-poll", [this] {
                  Client* const its = client.load();
                  return its != nullptr ? its->poll() : Worker::Sleep{1'000'000'000, true};
                }};
};

/// The clients of this process, one for each device. Visited without a lock; never removed.
class Clients {
 public:
  static constexpr int kMost = 32;

  template <class Visit>
  void for_each(Visit visit) {
    if (g_process.forked_child.load(std::memory_order_relaxed)) return;
    const int count = count_.load(std::memory_order_acquire);
    for (int i = 0; i < count; ++i) visit(*clients_[static_cast<std::size_t>(i)]);
  }
  [[nodiscard]] Client* of(CUdevice device) noexcept {
    Client* found = nullptr;
    for_each([&](Client& client) {
      if (client.device() == device) found = &client;
    });
    return found;
  }
  /// The only client; null if there is none, or more than one.
  [[nodiscard]] Client* only() noexcept {
    Client* found = nullptr;
    if (count() == 1) for_each([&found](Client& client) { found = &client; });
    return found;
  }
  [[nodiscard]] int count() const noexcept { return count_.load(std::memory_order_acquire); }
  /// Callers must hold a common lock.
  void add(std::unique_ptr<Client> client) noexcept {
    const int count = count_.load();
    clients_[static_cast<std::size_t>(count)] = std::move(client);
    count_.store(count + 1, std::memory_order_release);
  }

 private:
  std::array<std::unique_ptr<Client>, kMost> clients_;
  std::atomic<int> count_{0};
};

}  // namespace sluice::intercept
