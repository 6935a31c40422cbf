#include "server/requests/host.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "engine/context_lost.hpp"

namespace sluice::server {
namespace {

/// The end of a short step is seen at once; a long one costs no processor.
void wait_until_done(engine::Batch& batch) {
  constexpr std::uint64_t kSpinNs = 2'000;
  constexpr auto kPause = std::chrono::microseconds(20);
  const std::uint64_t begin = base::monotonic_ns();
  while (!batch.done()) {
    if (base::monotonic_ns() - begin > kSpinNs) std::this_thread::sleep_for(kPause);
  }
}

void begin_batch(Execution& execution) {
  const std::uint64_t begin = base::monotonic_ns();
  std::vector<std::vector<engine::Tensor>> inputs;
  for (const Pending& pending : execution.requests) inputs.push_back(pending.request.inputs);
  execution.batch = execution.instance->served->begin(inputs);
  execution.input_ns = base::monotonic_ns() - begin;
}

/// A thread that runs one step at a time and waits for its end.
class Executor {
 public:
  struct Work {
    Execution* execution;
    scheduler::Step step;
    Host::Ended ended;
  };

  Executor() : thread_([this] { loop(); }) {}
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;
  ~Executor() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    wake_.notify_one();
    thread_.join();
  }

  void run(Work work) {
    {
      const std::lock_guard lock(mutex_);
      work_ = std::move(work);
    }
    wake_.notify_one();
  }

 private:
  void loop() {
    while (true) {
      std::optional<Work> work;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stop_ || work_; });
        if (!work_) return;
        work.swap(work_);
      }
      work->ended(run_step(*work->execution, work->step));
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::optional<Work> work_;
  bool stop_ = false;
  std::thread thread_;
};

class Threads : public Host {
 public:
  ~Threads() override { stop(); }

  std::uint64_t now_ns() const override { return base::monotonic_ns(); }
  void pause() override { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

  void start(Round round) override {
    round_ = std::move(round);
    thread_ = std::thread([this] { loop(); });
  }

  void wake() override {
    const std::lock_guard lock(mutex_);
    woken_ = true;
    // Whoever is in a round looks again after it.
    if (!in_round_) changed_.notify_one();
  }

  void wake_here() override {
    std::unique_lock lock(mutex_);
    woken_ = true;
    if (stop_ || in_round_) return;
    // A few rounds only: this thread has work of its own.
    constexpr int kMostRounds = 4;
    for (int i = 0; i < kMostRounds && woken_ && !stop_; ++i) run_round(lock);
    if (stop_ || woken_ || next_ns_ < waits_until_ns_) changed_.notify_one();
  }

  void run(Execution& execution, const scheduler::Step& step, Ended ended) override {
    const std::lock_guard lock(mutex_);
    if (idle_.empty()) idle_.push_back(&executors_.emplace_back());
    Executor* const executor = idle_.back();
    idle_.pop_back();
    executor->run({&execution, step, [this, executor, ended = std::move(ended)](const auto& how) {
                     ended(how);
                     // Not before: the next step would wait for the round that ended() may run.
                     const std::lock_guard idle_lock(mutex_);
                     idle_.push_back(executor);
                   }});
  }

  void stop() override {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
    executors_.clear();
  }

 private:
  /// For the rounds that no other thread runs.
  void loop() {
    std::unique_lock lock(mutex_);
    woken_ = true;
    while (true) {
      wait(lock);
      if (stop_) return;
      run_round(lock);
    }
  }

  /// Returns when a round is due, or at the end, and no round runs.
  void wait(std::unique_lock<std::mutex>& lock) {
    while (in_round_ || !(stop_ || woken_ || next_ns_ <= now_ns())) {
      waits_until_ns_ = in_round_ ? scheduler::kNoDeadline : next_ns_;
      if (waits_until_ns_ == scheduler::kNoDeadline) {
        changed_.wait(lock);
      } else {
        const std::chrono::nanoseconds until(waits_until_ns_);
        changed_.wait_until(lock, std::chrono::steady_clock::time_point(until));
      }
    }
  }

  /// An exception ends the process: gRPC's threads would swallow it, and no round would run again.
  void run_round(std::unique_lock<std::mutex>& lock) noexcept {
    woken_ = false;
    in_round_ = true;
    lock.unlock();
    const std::uint64_t next_ns = round_();
    lock.lock();
    in_round_ = false;
    next_ns_ = next_ns;
  }

  Round round_;
  std::mutex mutex_;  ///< Guards what follows.
  std::condition_variable changed_;
  bool woken_ = false;
  bool in_round_ = false;
  bool stop_ = false;
  std::uint64_t next_ns_ = scheduler::kNoDeadline;         ///< When the next round is due.
  std::uint64_t waits_until_ns_ = scheduler::kNoDeadline;  ///< thread_.
  std::list<Executor> executors_;
  std::vector<Executor*> idle_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Host> threads() { return std::make_unique<Threads>(); }

StepResult run_step(Execution& execution, const scheduler::Step& step) {
  StepResult result;
  result.step = step;
  const std::lock_guard lock(execution.instance->runs);
  try {
    if (!execution.batch) begin_batch(execution);
    result.began_ns = base::monotonic_ns();
    execution.batch->launch(step.first_block, step.blocks);
    wait_until_done(*execution.batch);
  } catch (const engine::ContextLost& error) {
    result.error = error.what();
    result.context_lost = true;
  } catch (const std::exception& error) {
    result.error = error.what();
  }
  result.ended_ns = base::monotonic_ns();
  return result;
}

}  // namespace sluice::server
