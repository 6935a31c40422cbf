#pragma once
#include <atomic>
#include <cstdint>

#include "intercept/slot/client_slot.hpp"
#include "intercept/slot/turn_rule.hpp"

namespace sluice::intercept {

/// The turns of a client among those of its priority. A thread of its own looks at the rule and
/// obeys it: it closes the client's own gate with the client's own bit. It runs only while the
/// client takes turns.
class Turns {
 public:
  explicit Turns(ClientSlot& client) noexcept : client_(client), rule_(client.time_scale()) {}

  /// For the watcher: starts the thread when turns begin, and wakes it.
  void tick(std::uint64_t now_ns) noexcept;

 private:
  void run() noexcept;
  void obey(const TurnRule::Decision& decision) noexcept;
  void call(int slot) noexcept;

  ClientSlot& client_;
  TurnRule rule_;  ///< Of the thread.
  bool started_ = false;
};

}  // namespace sluice::intercept
