// The cost of a launch through the interposer, compared with a direct call, on a driver that
// returns immediately. Each mode needs a process of its own, so this program starts itself with the
// environment of each mode, and the child measures.
#include <benchmark/benchmark.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include "base/child.hpp"
#include "base/clock.hpp"
#include "intercept/driver/entries.hpp"
#include "tests/support/attached_client.hpp"
#include "tests/support/controller.hpp"

namespace {

using namespace sluice;
using test::AttachedClient;

CUresult launch(CUstream stream = nullptr) {
  return ::cuLaunchKernel(nullptr, 1, 1, 1, 1, 1, 1, 0, stream, nullptr, nullptr);
}

void one_launch(benchmark::State& state) {
  launch();
  for (auto _ : state) benchmark::DoNotOptimize(launch());
}

/// Into so many streams in turn. A context of this driver is the number of its device.
void streams_in_turn(benchmark::State& state, int streams, int devices) {
  std::vector<CUstream> made;
  for (int i = 0; i < streams; ++i) {
    ::cuCtxSetCurrent(reinterpret_cast<CUcontext>(static_cast<std::intptr_t>(1 + i % devices)));
    constexpr std::intptr_t kApart = 0x260;  // of the order of the real driver's
    made.push_back(reinterpret_cast<CUstream>(0x5581'0000'1000 + i * kApart));
    launch(made.back());
  }
  std::size_t next = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(launch(made[next]));
    if (++next == made.size()) next = 0;
  }
}

void per_thread_stream(benchmark::State& state) {
  const auto one = [] {
    return ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
  };
  one();
  for (auto _ : state) benchmark::DoNotOptimize(one());
}

void job_of_ten_launches(benchmark::State& state) {
  for (auto _ : state) {
    for (int i = 0; i < 10; ++i) benchmark::DoNotOptimize(launch());
    ::cuStreamSynchronize(nullptr);
  }
}

/// The modes. `outranked`: a client of higher priority lives, so this client paces its launches;
/// otherwise sync, event and device cost as much as gate.
struct Mode {
  const char* name;
  const char* policy;  ///< Null: no preload.
  int priority;
  bool controller;
  bool outranked;
};
constexpr Mode kModes[] = {
    {"direct call, no preload", nullptr, 0, false, false},
    {"preloaded, not attached", "gate", 0, false, false},
    {"gate, open", "gate", 0, true, true},
    {"none", "none", 0, true, true},
    {"event:2, outranked", "event:2", 0, true, true},
    {"device:4, outranked", "device:4", 0, true, true},
    {"device:4, nobody above", "device:4", 0, true, false},
    {"device:200us, outranked", "device:200us", 0, true, true},
    {"device:200us, nobody above", "device:200us", 0, true, false},
    {"critical, transparent jobs", "gate", 5, true, false},
};

/// The time when the held process ran again, in memory shared with the process that ends the job.
std::atomic<std::uint64_t>* shared_time(int fd) {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  return static_cast<std::atomic<std::uint64_t>*>(page);
}

/// For the held process: stores the time after each launch returns.
[[noreturn]] void run_held(int fd) {
  auto& ran = *shared_time(fd);
  for (;;) {
    launch();
    ran.store(base::monotonic_ns());
  }
}

double percentile(std::vector<double>& values, double part) {
  std::sort(values.begin(), values.end());
  return values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))];
}

/// The slot of a process, when it is live.
shm::Slot& slot_of(shm::Board& board, pid_t pid) {
  const auto found = [&] {
    return std::find_if(board.slots.begin(), board.slots.end(), [&](const shm::Slot& slot) {
      return shm::SlotInfo::unpack(slot.info.load()).state == shm::SlotState::kLive &&
             slot.pid.load() == static_cast<std::uint32_t>(pid);
    });
  };
  if (!test::eventually([&] { return found() != board.slots.end(); })) {
    throw std::runtime_error("the held process does not attach");
  }
  return *found();
}

void end_to_running_again(benchmark::State& state) {
  const int fd = memfd_create("time", 0);
  if (ftruncate(fd, 4096) != 0) std::abort();
  const auto& ran = *shared_time(fd);
  const char* session = std::getenv("SLUICE_SESSION");
  AttachedClient critical(session, 5);
  const test::Process held({"/proc/self/exe"},
                           {.environment = {"SLUICE_BENCH_HELD=" + std::to_string(fd),
                                            "LD_PRELOAD=" SLUICE_INTERCEPT_LIBRARY,
                                            "SLUICE_POLICY=gate", "SLUICE_PRIORITY=0"}});
  shm::Slot& slot = slot_of(critical.board(), held.pid());
  std::vector<double> times;
  for (auto _ : state) {
    critical.begin();
    while (slot.waiters.load() == 0) std::this_thread::yield();
    usleep(1000);  // the process sleeps by now
    const std::uint64_t ended = base::monotonic_ns();
    critical.end();
    while (ran.load() < ended) {
    }
    times.push_back(static_cast<double>(ran.load() - ended) * 1e-9);
    state.SetIterationTime(times.back());
  }
  state.counters["p50_us"] = percentile(times, 0.5) * 1e6;
  state.counters["p99_us"] = percentile(times, 0.99) * 1e6;
  close(fd);
}

int measure(const char* name, int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  const bool release = std::strcmp(name, "release") == 0;
  const std::string label(name);
  if (release) {
    benchmark::RegisterBenchmark("end of job to the held process running", end_to_running_again)
        ->UseManualTime()
        ->Iterations(300)
        ->Unit(benchmark::kMicrosecond);
  } else {
    benchmark::RegisterBenchmark(("launch: " + label).c_str(), one_launch);
    benchmark::RegisterBenchmark(("2 streams: " + label).c_str(), streams_in_turn, 2, 1);
    benchmark::RegisterBenchmark(("4 streams: " + label).c_str(), streams_in_turn, 4, 1);
    benchmark::RegisterBenchmark(("2 devices: " + label).c_str(), streams_in_turn, 2, 2);
    benchmark::RegisterBenchmark(("per-thread: " + label).c_str(), per_thread_stream);
    benchmark::RegisterBenchmark(("10 launches + sync: " + label).c_str(), job_of_ten_launches);
  }
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}

int run_mode(const Mode& mode, const std::vector<std::string>& command) {
  std::optional<test::Session> session;
  std::unique_ptr<test::Process> controller;
  std::unique_ptr<AttachedClient> above;
  std::vector<std::string> variables{std::string("SLUICE_BENCH_MODE=") + mode.name,
                                     "SLUICE_LOG=off",
                                     "SLUICE_PRIORITY=" + std::to_string(mode.priority)};
  if (mode.controller) controller = test::start_controller(session.emplace("bench"));
  if (mode.outranked) above = std::make_unique<AttachedClient>(session->name(), 200);
  if (mode.policy != nullptr) {
    variables.push_back("LD_PRELOAD=" SLUICE_INTERCEPT_LIBRARY);
    variables.push_back(std::string("SLUICE_POLICY=") + mode.policy);
  }
  return base::run_to_end(command, variables);
}

}  // namespace

int main(int argc, char** argv) {
  if (const char* fd = std::getenv("SLUICE_BENCH_HELD")) run_held(std::atoi(fd));
  if (const char* mode = std::getenv("SLUICE_BENCH_MODE")) return measure(mode, argc, argv);
  std::vector<std::string> command(argv, argv + argc);
  command.front() = "/proc/self/exe";
  int failed = 0;
  for (const Mode& mode : kModes) failed |= run_mode(mode, command);
  const test::Session session("bench");
  const auto controller = test::start_controller(session);
  failed |= base::run_to_end(command, {"SLUICE_BENCH_MODE=release"});
  return failed == 0 ? 0 : 1;
}
