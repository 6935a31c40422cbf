#include "server/requests/executor.hpp"

#include <chrono>
#include <exception>

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

}  // namespace

Executor::Executor(Ended ended) : ended_(std::move(ended)), thread_([this] { loop(); }) {}

Executor::~Executor() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void Executor::run(Execution& execution, const scheduler::Step& step) {
  {
    const std::lock_guard lock(mutex_);
    work_ = Work{&execution, step};
  }
  wake_.notify_one();
}

void Executor::loop() {
  while (true) {
    std::optional<Work> work;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stop_ || work_; });
      if (!work_) return;
      work.swap(work_);
    }
    ended_(*this, work_on(*work));
  }
}

StepResult Executor::work_on(const Work& work) {
  StepResult result;
  result.step = work.step;
  const std::lock_guard lock(work.execution->instance->runs);
  try {
    if (!work.execution->batch) begin_batch(*work.execution);
    result.began_ns = base::monotonic_ns();
    work.execution->batch->launch(work.step.first_block, work.step.blocks);
    wait_until_done(*work.execution->batch);
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
