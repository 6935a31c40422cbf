// The programs of a seed: what they do, and what `sluice set` does to them.
#include <algorithm>
#include <bit>
#include <cstdlib>
#include <utility>

#include "intercept/client/interposer.hpp"
#include "intercept/driver/driver.hpp"
#include "sluice/sluice.h"
#include "tests/simulation/world.hpp"
#include "tests/support/change_request.hpp"

namespace sluice::simulation {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
/// Longer than two launches wait for a stream.
constexpr std::uint64_t kLongNs = 11'000 * kMs;

}  // namespace

void World::start_process() {
  static constexpr std::array kPolicies{
      "gate",     "event:1",      "sync:2", "device:1",
      "device:4", "device:200us", "none",   "device:200us,ahead:2ms"};
  static constexpr std::array kSlices{"auto", "auto", "auto", "off", "100us", "2ms", "100ms"};
  Random& draws = fibers.random;
  auto made = std::make_unique<Process>();
  Process& process = *made;
  processes.push_back(std::move(made));
  process.globals = fresh_globals();
  for (std::size_t i = 0; i < process.streams.size(); ++i)
    process.streams[i].context = &process.contexts[i];
  process.pid = kFirstPid + static_cast<pid_t>(processes.size()) - 1;
  process.priority = static_cast<std::uint8_t>(draws.one_in(2) ? 0 : 1 + draws.below(2));
  process.reader = process.priority == 0 && draws.one_in(6);
  process.device = draws.one_in(8) ? 1 : 0;
  process.policy = kPolicies[draws.below(kPolicies.size())];
  process.slice = kSlices[draws.below(kSlices.size())];
  process.long_slices = draws.one_in(8);
  process.explicit_jobs = draws.one_in(2);
  process.ran_since_ns = process.progress_ns = fibers.now_ns;
  say("process " + std::to_string(process.pid) + " starts: priority " +
      std::to_string(process.priority) + ", " + process.policy + ", slice " + process.slice +
      (process.reader ? ", reader" : "") + (process.device != 0 ? ", device 1" : ""));
  process.gpu_time = draws.one_in(2);
  const bool predict = draws.one_in(2);
  process.by_law = draws.one_in(2);
  const bool weighs = draws.one_in(3);
  const std::uint64_t seed = draws.next();
  process.busy_threads = 1;
  fibers.add(process, [this, &process, seed, predict, weighs] {
    // Without a step, because the environment is that of the next process, too.
    const unsigned left = std::exchange(g_steps_left, 0U);
    setenv("SLUICE_PRIORITY", std::to_string(process.priority).c_str(), 1);
    setenv("SLUICE_POLICY", process.policy, 1);
    setenv("SLUICE_GPU_TIME", process.gpu_time ? "1" : "0", 1);
    setenv("SLUICE_SLICE", process.slice, 1);
    setenv("SLUICE_PREDICT", predict ? "1" : "0", 1);
    setenv("SLUICE_GIVE", process.by_law ? "5%" : "0", 1);
    setenv("SLUICE_WEIGHT", weighs ? "3" : "none", 1);
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
  GpuStream& front = process.streams.front();
  if (slow_) launch(process, front, kLongNs);
  for (int i = slow_ ? 4 : 1; i != 0; --i) launch(process, front, kMs);
  for (GpuStream& stream : process.streams) synchronise(process, stream);
  --process.busy_threads;
}

/// In peace: those with priority have a job, next to the launches of the others.
void World::last_act(Process& process) {
  GpuStream& stream = process.streams.front();
  if (process.priority == 0) {
    for (int i = 0; i < 6; ++i) launch(process, stream, 3 * kMs);
  } else {
    const std::uint64_t job = process.explicit_jobs ? sluice_job_begin(0) : 0;
    for (int i = 0; i < 2; ++i) launch(process, stream, 20 * kMs);
    synchronise(process, stream);
    if (job != 0) sluice_job_end(job);
  }
  --process.busy_threads;
}

namespace {

/// A call to the driver that names a stream. Nobody ends the stream meanwhile.
class Call {
 public:
  explicit Call(GpuStream& stream) : stream_(stream) {
    while (stream.ends) g_fibers->sleep(g_fibers->now_ns + kMs);
    ++stream.users;
    ++g_world->running().calls;
    g_fibers->current->contexts = {stream.context};
  }
  ~Call() {
    --stream_.users;
    --g_world->running().calls;
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  GpuStream& stream_;
};

}  // namespace

/// The kernel takes `ns`, or until one of the stream `other` has ended.
void World::launch(Process& process, GpuStream& stream, std::uint64_t ns, GpuStream* other) {
  const Call call(stream);
  const std::uint64_t begin_ns = process.progress_ns = fibers.now_ns;
  // The first launch of a thread as a client may count as one from before.
  const unsigned bit = &stream == &process.streams.front() ? 1 : 2;
  if ((fibers.current->launched & bit) != 0) process.seen_progress_ns = begin_ns;
  fibers.current->is_client = sluice_attached() != 0;
  if (fibers.current->is_client) fibers.current->launched |= bit;
  fibers.current->launch_turn = turn_;
  fibers.current->blocked_ns = 0;
  std::array<void*, 2> arguments{&ns, other};
  // Launches of the same kind take about the same time.
  const auto blocks = static_cast<unsigned>(std::bit_width(ns));
  ::cuLaunchKernel(nullptr, blocks, 1, 1, 1, 1, 1, 0, reinterpret_cast<CUstream>(&stream),
                   arguments.data(), nullptr);
  launch_returned(process, stream, fibers.now_ns - begin_ns - fibers.current->blocked_ns);
}

void World::synchronise(Process& process, GpuStream& stream) {
  const Call call(stream);
  fibers.current->attached = sluice_attached() != 0;
  fibers.current->waits_since_ns = fibers.now_ns;
  ::cuStreamSynchronize(reinterpret_cast<CUstream>(&stream));
  const std::uint64_t since_ns = std::exchange(fibers.current->waits_since_ns, 0);
  if (fibers.now_ns - since_ns > kMaxHoldNs * 8 / 10) process.waited_ns = fibers.now_ns;
  process.progress_ns = fibers.now_ns;
  if (fibers.current->attached) process.seen_progress_ns = fibers.now_ns;
}

/// The stream waits until the program's word has the value.
void World::park(Process& process, GpuStream& stream, std::uint64_t value) {
  {
    const Call call(stream);
    intercept::driver().cuStreamWaitValue64_v2(  // there is no hook
        reinterpret_cast<CUstream>(&stream), reinterpret_cast<CUdeviceptr>(&process.host_word),
        value, CU_STREAM_WAIT_VALUE_GEQ);
  }
  launch(process, stream, kMs);
}

/// The next stream, or context, has the same handle.
void World::end_and_make(GpuStream& stream, bool context) {
  if (stream.ends || stream.users != 0) return;
  stream.ends = true;
  fibers.current->contexts = {stream.context};
  context ? ::cuCtxDestroy_v2(reinterpret_cast<CUcontext>(stream.context))
          : ::cuStreamDestroy_v2(reinterpret_cast<CUstream>(&stream));
  fibers.sleep(fibers.now_ns + fibers.random.below(20 * kMs));
  stream.context->exists = stream.exists = true;
  stream.ends = false;
}

/// A stream of a program with less priority on the same device; null if there is none.
GpuStream* World::one_below(const Process& process) {
  for (const auto& other : processes) {
    const bool below = other->priority < process.priority && other->device == process.device;
    if (below && !other->killed && !other->exited) return &other->streams.front();
  }
  return nullptr;
}

/// One thing that a program does.
void World::act(Process& process, Random& draws, std::uint64_t& announced) {
  GpuStream& stream = process.streams[draws.below(process.streams.size())];
  const auto nap = [&](std::uint64_t ns) { fibers.sleep(fibers.now_ns + ns); };
  const auto burst = [&] {
    for (std::uint64_t left = 1 + draws.below(6); left != 0; --left) {
      const std::uint64_t ns = draws.one_in(1'500) ? kLongNs
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
      if (draws.one_in(8)) return end_and_make(stream, draws.one_in(2));
      if (GpuStream* const other = draws.one_in(12) ? one_below(process) : nullptr)
        launch(process, stream, 3'000 * kMs, other);
      if (draws.one_in(16)) {
        // In a thread of its own: this one may wait for room in the queue of the stream.
        const std::uint64_t value = ++process.parked;
        ++process.busy_threads;
        fibers.add(process,
                   [this, &process, value, until_ns = fibers.now_ns + draws.below(3'000 * kMs)] {
                     fibers.sleep(until_ns);
                     process.host_word = std::max(process.host_word, value);
                     --process.busy_threads;
                   });
        return park(process, stream, value);
      }
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
  ++process.open_jobs;
  for (std::uint64_t left = draws.below(4); left != 0; --left) {
    draws.one_in(3) ? nap(draws.one_in(6) ? draws.below(3'000 * kMs) : draws.below(5 * kMs))
                    : burst();
  }
  if (draws.one_in(2)) synchronise(process, stream);
  --process.open_jobs;
  sluice_job_end(job);
}

/// `sluice set`, as somebody else would ask for it.
void World::change(Process& process, bool priority) {
  const int index = slot_of(process);
  if (index < 0) return;
  const std::uint32_t generation = shm::SlotInfo::unpack(slot(index).info.load()).generation;
  shm::Request request = test::change_of({index, generation}, board.board_id.load());
  if (priority) request.priority = static_cast<std::uint32_t>(fibers.random.below(4));
  if (!priority)
    request.policy = shm::parse_policy(fibers.random.one_in(2) ? "gate" : "device:1")->pack();
  if (fibers.random.one_in(2)) request.weight = static_cast<std::uint32_t>(fibers.random.below(4));
  const int connection = connect();
  if (connection < 0) return;
  process.changed = true;
  shm::Reply reply;
  shm::ask(connection, request, reply, 1000);
  hang_up(connection);
}

}  // namespace sluice::simulation
