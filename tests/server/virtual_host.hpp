#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "server/requests/host.hpp"

namespace sluice::server {

/// A host without threads, whose time passes only in advance(). A message to its dispatcher is
/// handled before the call that leaves it returns.
class VirtualHost : public Host {
 public:
  /// How long a step takes.
  std::function<std::uint64_t(const Execution&, const scheduler::Step&)> takes;
  /// How much later than it asked for a round is called: a busy machine.
  std::uint64_t late_ns = 0;

  std::uint64_t now_ns() const override { return now_ns_; }
  void pause() override { advance(1'000'000); }
  void start(Round round) override {
    round_ = std::move(round);
    wake();
  }
  void wake() override {
    woken_ = true;
    if (std::exchange(in_round_, true)) return;
    while (std::exchange(woken_, false)) next_ns_ = round_();
    in_round_ = false;
  }
  void run(Execution& execution, const scheduler::Step& step, Ended ended) override {
    StepResult result = run_step(execution, step);
    result.began_ns = now_ns_;
    result.ended_ns = now_ns_ + takes(execution, step);
    steps_.emplace(result.ended_ns, [result, ended = std::move(ended)] { ended(result); });
  }
  void stop() override {
    in_round_ = true;
    for (const auto& [at, ended] : steps_) ended();
    steps_.clear();
  }

  /// What is due at the same time happens in the order of the ends of steps, then rounds.
  void advance(std::uint64_t ns) {
    const std::uint64_t until_ns = now_ns_ + ns;
    while (true) {
      const std::uint64_t step_ns = steps_.empty() ? kNever : steps_.begin()->first;
      const std::uint64_t round_ns =
          next_ns_ == kNever ? kNever : std::max(now_ns_, next_ns_ + late_ns);
      const std::uint64_t first_ns = std::min(step_ns, round_ns);
      if (first_ns > until_ns) break;
      now_ns_ = first_ns;
      if (first_ns == step_ns) {
        const auto ended = std::move(steps_.begin()->second);
        steps_.erase(steps_.begin());
        ended();
      } else {
        wake();
        ASSERT_GT(next_ns_, now_ns_) << "a round that asks for itself again at once";
      }
    }
    now_ns_ = until_ns;
  }

 private:
  static constexpr std::uint64_t kNever = scheduler::kNoDeadline;

  std::uint64_t now_ns_ = 1'000'000'000;
  std::uint64_t next_ns_ = kNever;
  bool woken_ = false;
  bool in_round_ = false;
  Round round_;
  std::multimap<std::uint64_t, std::function<void()>> steps_;
};

}  // namespace sluice::server
