#pragma once
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>

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

/// A thread that runs one step at a time and waits for its end.
class Executor {
 public:
  using Ended = std::function<void(Executor&, const StepResult&)>;
  /// `ended` is called from the executor's thread.
  explicit Executor(Ended ended);
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor();

  /// Starts a step of `execution`, which belongs to the executor until `ended` is called.
  void run(Execution& execution, const scheduler::Step& step);

 private:
  struct Work {
    Execution* execution;
    scheduler::Step step;
  };
  void loop();
  static StepResult work_on(const Work& work);

  Ended ended_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Work> work_;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace sluice::server
