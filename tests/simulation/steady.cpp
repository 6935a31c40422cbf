// A time in which everybody does the same thing for long: what best effort gets then.
#include <algorithm>

#include "shm/policy.hpp"
#include "sluice/sluice.h"
#include "tests/simulation/world.hpp"

namespace sluice::simulation {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
/// The slices, the law and the budget learn at first, and a stream counts as stalled after
/// max_hold.
constexpr std::uint64_t kLearnNs = 3'000 * kMs;
constexpr std::uint64_t kSteadyNs = 16'000 * kMs;
/// Best effort waits for so long for a window of a program that is never idle, if no kernel of it
/// is long.
constexpr std::uint64_t kHungerNs = 8'000 * kMs;
constexpr std::uint64_t kLongestKernelNs = 60 * kMs;
constexpr std::uint64_t kToleranceNs = 500 * kMs;

using Role = Process::Role;

const char* name_of(Role role) {
  switch (role) {
    case Role::kNeverIdle:
      return "is never idle";
    case Role::kRhythm:
      return "has a job each period";
    case Role::kParked:
      return "has a stream that waits for it";
    case Role::kBatch:
      return "always has work";
    default:
      return "does next to nothing";
  }
}

}  // namespace

void World::play(Process& process, std::uint64_t end_ns) {
  Random& draws = fibers.random;
  GpuStream& stream = process.streams.front();
  const bool parks = process.role == Role::kParked;
  const std::uint64_t kernel_ns = (2 + draws.below(8)) * kMs;
  const std::uint64_t kernels = 1 + draws.below(3);
  const std::uint64_t work_ns = parks ? kMs : kernel_ns;
  const std::uint64_t period_ns = kernels * work_ns * (parks ? 50 : 2 + draws.below(8));
  // Work outside of its jobs does not count as use of a program that says what its jobs are.
  const auto job = [&](std::uint64_t count, std::uint64_t ns) {
    const std::uint64_t opened = process.explicit_jobs ? sluice_job_begin(0) : 0;
    for (std::uint64_t i = 0; i < count; ++i) launch(process, stream, ns);
    synchronise(process, stream);
    if (opened != 0) sluice_job_end(opened);
  };
  if (parks) park(process, process.streams.back(), ++process.parked);
  while (fibers.now_ns < end_ns) {
    const std::uint64_t next_ns = fibers.now_ns + period_ns;
    switch (process.role) {
      case Role::kNeverIdle:
        job(kernels, work_ns);
        break;
      case Role::kRhythm:
      case Role::kParked:
        job(kernels, work_ns);
        if (fibers.now_ns < next_ns) fibers.sleep(next_ns);
        break;
      case Role::kBatch:
        job(4, 2 * kernel_ns);
        break;
      case Role::kSlight:
        launch(process, stream, 10'000);
        fibers.sleep(fibers.now_ns + 500 * kMs);
    }
  }
  if (parks) process.host_word = process.parked;
  --process.busy_threads;
}

void World::steady() {
  Random& draws = fibers.random;
  say("everybody does the same thing for long");
  const std::uint64_t begin_ns = fibers.now_ns;
  steady_from_ns_ = begin_ns + kLearnNs;
  for (const auto& each : processes) {
    Process& process = *each;
    if (process.gone) continue;
    static constexpr std::array kAbove{Role::kNeverIdle, Role::kRhythm, Role::kRhythm,
                                       Role::kParked, Role::kSlight};
    const int index = slot_of(process);
    const bool below = shm::SlotInfo::unpack(slot(index).info.load()).priority == 0;
    process.role = !below            ? kAbove[draws.below(kAbove.size())]
                   : draws.one_in(4) ? Role::kSlight
                                     : Role::kBatch;
    say(std::to_string(process.pid) + " " + name_of(process.role));
    process.fed_ns = steady_from_ns_;
    ++process.busy_threads;
    fibers.add(process, [this, &process, begin_ns] { play(process, begin_ns + kSteadyNs); });
  }
  pass(kSteadyNs);
  steady_from_ns_ = 0;
  await_programs();
  for (const auto& process : processes) {
    if (!process->gone && process->role == Role::kBatch) check_share(*process);
  }
}

/// Whoever could hold `process`, and whether one of them uses the GPU or waits for it now.
World::Above World::those_above(const Process& process) {
  const shm::SlotInfo own = shm::SlotInfo::unpack(slot(slot_of(process)).info.load());
  Above above;
  for (const auto& other : processes) {
    const int index = slot_of(*other);
    if (index < 0) continue;
    const shm::SlotInfo info = shm::SlotInfo::unpack(slot(index).info.load());
    if (info.device != own.device || info.priority <= own.priority) continue;
    ++above.count;
    above.by_law = above.by_law && other->by_law;
    above.busy = above.busy || runs_on_gpu(*other) || other->calls != 0;
  }
  return above;
}

void World::look_at_share(Process& process, std::uint64_t passed) {
  const std::uint64_t now = fibers.now_ns;
  const int index = slot_of(process);
  if (index < 0 || process.role != Role::kBatch || steady_from_ns_ == 0 || now < steady_from_ns_)
    return;
  const Above above = those_above(process);
  const shm::Slot& own = slot(index);
  const std::uint64_t self = std::uint64_t{1} << static_cast<unsigned>(index);
  const bool held = (own.gate.load() & ~self) != 0;
  if (!above.busy) (held ? process.held_idle_ns : process.open_idle_ns) += passed;
  const auto policy = shm::Policy::unpack(own.policy.load());
  const bool may_starve = !above.by_law || policy.kind != shm::PolicyKind::kDevice ||
                          own.longest_launch_ns.load() > kLongestKernelNs;
  if (!held || may_starve || runs_on_gpu(process)) process.fed_ns = now;
  if (now > process.fed_ns + kHungerNs) broken("gets nothing: " + std::to_string(process.pid));
}

/// Of the time in which those above do not use the GPU, best effort has at least half.
void World::check_share(const Process& process) {
  if (process.held_idle_ns > process.open_idle_ns + kToleranceNs)
    broken("is held while those above are idle: " + std::to_string(process.pid));
}

}  // namespace sluice::simulation
