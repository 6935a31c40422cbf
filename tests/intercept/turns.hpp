// Clients of one priority that take turns, in virtual time, on a board in this process.
#pragma once
#include <array>
#include <random>

#include "intercept/slot/turn_rule.hpp"
#include "shm/gates.hpp"
#include "shm/policy.hpp"
#include "shm/view.hpp"
#include "tests/support/board_test.hpp"

namespace sluice::intercept::test {

using sluice::test::kMs;

constexpr std::uint64_t kStepNs = 50'000;
constexpr std::uint64_t kBeatNs = 20 * kMs;
constexpr std::uint64_t kNever = ~std::uint64_t{0};

/// Programs whose threads are late by a random time, on a GPU that those with open gates share.
class Turns : public sluice::test::BoardTest {
 protected:
  struct Program {
    TurnRule rule;
    bool lives = true;
    bool looks = true;  ///< False: it has no thread for its turns.
    std::uint64_t look_ns = 0;
    std::uint64_t stopped_until_ns = 0;
    std::uint64_t work_ns = kNever;    ///< GPU time until it has no work.
    std::uint64_t served_ns = 0;       ///< GPU time that it has had.
    std::uint64_t kernel_ns = 0;       ///< What it runs when its gate closes runs on for so long.
    std::uint64_t runs_until_ns = 0;   ///< Until then.
    std::uint64_t waits_since_ns = 0;  ///< Since when it has wanted to run and had nothing.
    std::uint64_t longest_wait_ns = 0;
    int turns = 0;
  };

  int add(std::uint32_t weight, int priority = 0) {
    const int index = count_++;
    shm::Slot& client = add_client(index, priority, "train");
    client.requested_weight.store(weight);
    client.watcher_beat_ns.store(now_);
    client.job.store(1);
    programs_[static_cast<std::size_t>(index)].look_ns = now_ + late();
    return index;
  }
  Program& program(int index) { return programs_[static_cast<std::size_t>(index)]; }
  [[nodiscard]] double served_ms(int index) {
    return static_cast<double>(program(index).served_ns) / kMs;
  }

  void die(int index) {
    program(index).lives = false;
    set_state(index, shm::SlotState::kDead, 0);
  }
  void stop(int index, std::uint64_t ms) { program(index).stopped_until_ns = now_ + ms * kMs; }
  /// From now on it has so much work and then none, until it is given some again.
  void give_work(int index, std::uint64_t ns) {
    program(index).work_ns = ns;
    if (ns != 0 && !shm::is_active(slot(index).job.load())) slot(index).job.fetch_add(1);
  }
  /// Closes or opens the gates of all, as a job of a client above does.
  void hold_all(bool hold) {
    held_ = hold;
    for (int i = 0; i < count_; ++i) settle_times(i);
  }

  void run(std::uint64_t ms) {
    const std::uint64_t end = now_ + ms * kMs;
    while (now_ < end) {
      now_ += kStepNs;
      for (int i = 0; i < count_; ++i) look(i);
      serve();
    }
  }

  std::uint64_t late() { return latest_ns_ == 0 ? 0 : random_() % latest_ns_; }

  [[nodiscard]] bool is_open(int index) {
    return !held_ && (slot(index).gate.load() & shm::bit(index)) == 0;
  }
  /// The job ends with its work, and the time of the closed gate is that of the view.
  void settle_times(int index) {
    shm::Slot& client = slot(index);
    if (!is_open(index) && client.closed_since_ns.load() == 0) client.closed_since_ns.store(now_);
    if (is_open(index) && client.closed_since_ns.load() != 0) {
      const std::uint64_t since = client.closed_since_ns.exchange(0);
      client.closed_ns.fetch_add(shm::held_ns(client, since, now_));
    }
  }

  virtual bool is_drained(int index) { return now_ >= program(index).runs_until_ns; }

  /// Whether it is time for the client to look.
  bool is_due(int index) {
    Program& looking = program(index);
    shm::Slot& client = slot(index);
    if (!looking.lives || now_ < looking.stopped_until_ns) return false;
    if (now_ - client.watcher_beat_ns.load() >= kBeatNs) client.watcher_beat_ns.store(now_);
    const bool should = should_take_turns(*board_, index, now_);
    if (!looking.looks) return false;
    return now_ >= looking.look_ns || should != (client.turn.takes.load() != 0);
  }

  void look(int index) {
    Program& looking = program(index);
    if (!is_due(index)) return;
    obey(index, looking.rule.look(*board_, index, now_, is_drained(index)));
  }

  void obey(int index, const TurnRule::Decision& decision) {
    Program& looking = program(index);
    shm::Slot& client = slot(index);
    const bool had = client.turn.until_ns.load() != 0;
    client.turn.takes.store(decision.takes_word());
    client.turn.used.store(decision.used);
    client.turn.until_ns.store(decision.until_ns);
    if (!had && decision.until_ns != 0) ++looking.turns;
    const bool was_open = (client.gate.load() & shm::bit(index)) == 0;
    if (was_open && !decision.runs && had) looking.runs_until_ns = now_ + looking.kernel_ns;
    decision.runs ? client.gate.fetch_and(~shm::bit(index)) : client.gate.fetch_or(shm::bit(index));
    settle_times(index);
    const std::uint64_t lateness = looking.rule.drains() ? 0 : late();
    looking.look_ns = decision.look_ns == kNever ? kNever : decision.look_ns + lateness;
    for (int i = 0; i < count_; ++i) {
      if (decision.call == i) program(i).look_ns = now_ + late();
    }
  }

  /// What a stopped program has launched runs on, as far as its gate is open.
  virtual void serve() {
    const auto wants = [&](int i) {
      return program(i).lives && shm::is_active(slot(i).job.load());
    };
    int sharing = 0;
    bool anybody = false;
    for (int i = 0; i < count_; ++i) {
      sharing += wants(i) && is_open(i) ? 1 : 0;
      anybody = anybody || wants(i);
    }
    if (anybody && sharing == 0 && !held_) unused_ns_ += kStepNs;
    int left = 0;
    for (int i = 0; i < count_; ++i) left += program(i).lives && now_ < program(i).runs_until_ns;
    if (sharing + left > 1) shared_ns_ += kStepNs;
    if (left != 0 && sharing == 0) unused_ns_ -= kStepNs;
    for (int i = 0; i < count_; ++i) {
      Program& served = program(i);
      if (wants(i) && is_open(i)) {
        const std::uint64_t part =
            std::min(kStepNs / static_cast<std::uint64_t>(sharing), served.work_ns);
        served.served_ns += part;
        served.waits_since_ns = now_;
        if (served.work_ns != kNever) served.work_ns -= part;
        if (served.work_ns == 0) slot(i).job.fetch_add(1);
      } else if (!wants(i) || served.waits_since_ns == 0) {
        served.waits_since_ns = now_;
      }
      served.longest_wait_ns = std::max(served.longest_wait_ns, now_ - served.waits_since_ns);
    }
  }

  std::array<Program, 8> programs_;
  int count_ = 0;
  std::uint64_t now_ = sluice::test::kNow;
  std::uint64_t unused_ns_ = 0;  ///< Somebody wanted to run and nobody did.
  std::uint64_t shared_ns_ = 0;  ///< Several ran at once.
  std::uint64_t latest_ns_ = 100'000;
  bool held_ = false;
  std::mt19937_64 random_{1};
};

}  // namespace sluice::intercept::test
