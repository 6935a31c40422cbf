#pragma once
#include <atomic>
#include <cstdint>

#include "intercept/driver/threads.hpp"
#include "intercept/slot/arrivals.hpp"
#include "intercept/slot/client_slot.hpp"
#include "intercept/slot/turn_rule.hpp"

namespace sluice::intercept {

/// The turns of a client among those of its priority. A thread of its own looks at the rule and
/// obeys it: it closes the client's own gate with the client's own bit. It sleeps while the client
/// takes no turns.
class Turns {
 public:
  /// `keeper` must call start_if_due() when woken. `poller` finds the ends of jobs.
  Turns(ClientSlot& client, Arrivals& arrivals, Worker& keeper, Worker& poller) noexcept
      : client_(client),
        arrivals_(arrivals),
        keeper_(keeper),
        poller_(poller),
        rule_(client.time_scale()) {}

  /// For the watcher: has the thread started when turns begin, and wakes it.
  void tick(std::uint64_t now_ns) noexcept;
  /// For the keeper: the watcher allocates nothing.
  void start_if_due() noexcept;

 private:
  void run() noexcept;
  bool obey(const TurnRule::Decision& decision) noexcept;
  void call(int slot) noexcept;

  enum class Thread : std::uint8_t { kNone, kWanted, kRuns };

  ClientSlot& client_;
  Arrivals& arrivals_;
  Worker& keeper_;
  Worker& poller_;
  TurnRule rule_;  ///< Of the thread.
  std::atomic<Thread> thread_{Thread::kNone};
};

}  // namespace sluice::intercept
