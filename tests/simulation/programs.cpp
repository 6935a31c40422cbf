// The programs of a seed: what they do, and what `sluice set` does to them.
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "intercept/client/interposer.hpp"
#include "shm/messages.hpp"
#include "sluice/sluice.h"
#include "tests/simulation/world.hpp"

namespace sluice::simulation {
namespace {

constexpr std::uint64_t kMs = 1'000'000;

}  // namespace

void World::start_process() {
  static constexpr std::array kPolicies{
      "gate",     "event:1",      "sync:2", "device:1",
      "device:4", "device:200us", "none",   "device:200us,ahead:2ms"};
  Random& draws = fibers.random;
  auto made = std::make_unique<Process>();
  Process& process = *made;
  processes.push_back(std::move(made));
  process.globals = fresh_globals();
  process.pid = kFirstPid + static_cast<pid_t>(processes.size()) - 1;
  process.priority = static_cast<std::uint8_t>(draws.one_in(2) ? 0 : 1 + draws.below(2));
  process.reader = process.priority == 0 && draws.one_in(6);
  process.device = draws.one_in(8) ? 1 : 0;
  process.policy = kPolicies[draws.below(kPolicies.size())];
  process.explicit_jobs = draws.one_in(2);
  process.ran_since_ns = process.progress_ns = fibers.now_ns;
  say("process " + std::to_string(process.pid) + " starts: priority " +
      std::to_string(process.priority) + ", " + process.policy +
      (process.reader ? ", reader" : "") + (process.device != 0 ? ", device 1" : ""));
  const bool gpu_time = draws.one_in(4);
  const bool predict = draws.one_in(2);
  const bool by_law = draws.one_in(2);
  const std::uint64_t seed = draws.next();
  process.busy_threads = 1;
  fibers.add(process, [this, &process, seed, gpu_time, predict, by_law] {
    // Without a step, because the environment is that of the next process, too.
    const unsigned left = std::exchange(g_steps_left, 0U);
    setenv("SLUICE_PRIORITY", std::to_string(process.priority).c_str(), 1);
    setenv("SLUICE_POLICY", process.policy, 1);
    setenv("SLUICE_GPU_TIME", gpu_time ? "1" : "0", 1);
    setenv("SLUICE_PREDICT", predict ? "1" : "0", 1);
    setenv("SLUICE_CLOSE", by_law ? "law" : "first", 1);
    intercept::Interposer::instance();
    g_steps_left = left;
    if (seed % 3 == 0) {
      ++process.busy_threads;
      fibers.add(process, [this, &process, seed] { program(process, seed + 1); });
    }
    program(process, seed);
  });
}

void World::program(Process& process, std::uint64_t seed) {
  Random draws(seed);
  std::uint64_t announced = 0;
  while (!peaceful_) act(process, draws, announced);
  if (announced != 0) sluice_job_cancel(announced);
  // In peace it is attached: its watcher has found the controller by now.
  fibers.sleep(fibers.now_ns + 700 * kMs);
  launch(process, process.streams.front(), kMs);
  for (GpuStream& stream : process.streams) synchronise(process, stream);
  --process.busy_threads;
}

void World::launch(Process& process, GpuStream& stream, std::uint64_t ns) {
  process.progress_ns = fibers.now_ns;
  const std::uint64_t begin_ns = fibers.now_ns;
  fibers.current->launch_turn = turn_;
  fibers.current->blocked_ns = 0;
  std::array<void*, 1> arguments{&ns};
  ::cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, reinterpret_cast<CUstream>(&stream),
                   arguments.data(), nullptr);
  launch_returned(process, stream, fibers.now_ns - begin_ns - fibers.current->blocked_ns);
}

void World::synchronise(Process& process, GpuStream& stream) {
  fibers.current->waits_since_ns = fibers.now_ns;
  ::cuStreamSynchronize(reinterpret_cast<CUstream>(&stream));
  const std::uint64_t since_ns = std::exchange(fibers.current->waits_since_ns, 0);
  if (fibers.now_ns - since_ns > kMaxHoldNs * 8 / 10) process.waited_ns = fibers.now_ns;
  process.progress_ns = fibers.now_ns;
}

/// One thing that a program does.
void World::act(Process& process, Random& draws, std::uint64_t& announced) {
  GpuStream& stream = process.streams[draws.below(process.streams.size())];
  const auto nap = [&](std::uint64_t ns) { fibers.sleep(fibers.now_ns + ns); };
  const auto burst = [&] {
    for (std::uint64_t left = 1 + draws.below(6); left != 0; --left) {
      const std::uint64_t ns = draws.one_in(1'500) ? 12'000 * kMs
                               : draws.one_in(20)  ? 20 * kMs
                                                   : 10'000 + draws.below(kMs);
      launch(process, stream, ns);
    }
  };
  switch (draws.below(8)) {
    case 0:
    case 1:
    case 2:
      return burst();
    case 3:
      return synchronise(process, stream);
    case 4:
      if (!process.explicit_jobs) return synchronise(process, stream);
      break;
    case 5:
      if (!process.explicit_jobs) return burst();
      if (announced == 0) announced = sluice_job_announce(fibers.now_ns + draws.below(40 * kMs));
      return nap(draws.below(60 * kMs));
    case 6:
      return nap(draws.below(30 * kMs));
    default:
      return nap(draws.one_in(10) ? draws.below(3'000 * kMs) : draws.below(kMs));
  }
  const std::uint64_t job = sluice_job_begin(std::exchange(announced, 0));
  for (std::uint64_t left = draws.below(4); left != 0; --left) {
    draws.one_in(3) ? nap(draws.one_in(6) ? draws.below(3'000 * kMs) : draws.below(5 * kMs))
                    : burst();
  }
  if (draws.one_in(2)) synchronise(process, stream);
  sluice_job_end(job);
}

/// `sluice set`, as somebody else would ask for it.
void World::change(Process& process, bool priority) {
  shm::Request request;
  request.kind = shm::RequestKind::kSet;
  request.board_id = board.board_id.load();
  request.priority = shm::kKeepPriority;
  request.policy = shm::kKeepPolicy;
  request.target = shm::kKeepTarget;
  request.slot = slot_of(process);
  if (request.slot < 0) return;
  request.generation = shm::SlotInfo::unpack(slot(request.slot).info.load()).generation;
  if (priority) request.priority = static_cast<std::uint32_t>(fibers.random.below(4));
  if (!priority)
    request.policy = shm::parse_policy(fibers.random.one_in(2) ? "gate" : "device:1")->pack();
  const int connection = connect();
  if (connection < 0) return;
  process.changed = true;
  shm::Reply reply;
  shm::ask(connection, request, reply, 1000);
  hang_up(connection);
}

}  // namespace sluice::simulation
