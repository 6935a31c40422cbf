#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "scheduler/task.hpp"
#include "server/requests/execution.hpp"

namespace sluice::server {

/// How a step ended.
struct StepResult {
  scheduler::Step step;
  std::uint64_t began_ns = 0;
  std::uint64_t ended_ns = 0;
  std::string error;          ///< Empty: it succeeded.
  bool context_lost = false;  ///< The device is unusable from now on.
};

/// Runs a step of `execution` and waits for its end.
[[nodiscard]] StepResult run_step(Execution& execution, const scheduler::Step& step);

/// What a dispatcher runs on: the time, and threads. That of the tests has virtual time and no
/// threads.
class Host {
 public:
  /// Returns when it has to be called again at the latest; scheduler::kNoDeadline: never.
  using Round = std::function<std::uint64_t()>;
  using Ended = std::function<void(const StepResult&)>;

  Host() = default;
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;
  virtual ~Host() = default;

  [[nodiscard]] virtual std::uint64_t now_ns() const = 0;
  /// Lets some time pass.
  virtual void pause() = 0;
  /// From now on `round` is called: at once, after each wake(), and at the time that it returned.
  /// No two calls overlap.
  virtual void start(Round round) = 0;
  virtual void wake() = 0;
  /// As wake(), and the round may run before this returns: nobody else has to wake up for it. The
  /// caller holds no lock that a round takes.
  virtual void wake_here() { wake(); }
  /// Runs a step of `execution`, which belongs to the host until it calls `ended`, from any thread.
  virtual void run(Execution& execution, const scheduler::Step& step, Ended ended) = 0;
  /// Returns when no round and no step runs. None begins any more.
  virtual void stop() = 0;
};

/// CLOCK_MONOTONIC, a thread for the rounds that no caller runs, and one for each step that runs at
/// the same time.
[[nodiscard]] std::unique_ptr<Host> threads();

}  // namespace sluice::server
