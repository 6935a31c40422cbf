// review_cases CASE [ARGUMENT]: small programs that know nothing of Sluice, and that it once broke
// or slowed down. review.py runs them and judges what they print.
//   update           a graph is updated with the same kernels in another shape
//   cancel           a thread that waits in the driver is cancelled
//   idle DEVICE      one kernel, then nothing until stdin ends
//   silent           kernels without any synchronisation, then nothing until stdin ends
//   short N          N kernels of 20 us; the GPU is never more than 256 behind
//   busy SECONDS     work without a gap, never synchronised as a whole
//   jobs SECONDS [second]   a job of 1 ms every 20 ms; with a second device in use
//   reset            resets the first of two devices, then works on the second
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>

#include "tests/real_gpu/graphs/kernels.hpp"

namespace sluice::graphs {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
constexpr std::uint64_t kUs = 1000;

void say(const std::string& line) { std::cout << line << std::endl; }
void wait_for_line() {
  std::string line;
  std::getline(std::cin, line);
}

CUdeviceptr memory() {
  CUdeviceptr at = 0;
  SLUICE_MUST(cuMemAlloc(&at, kWords * sizeof(std::uint32_t)));
  return at;
}

void enter(CUdevice device) {
  CUcontext context = nullptr;
  SLUICE_MUST(cuInit(0));
  SLUICE_MUST(cuDevicePrimaryCtxRetain(&context, device));
  SLUICE_MUST(cuCtxSetCurrent(context));
  load_kernels();
}

void spin(CUstream stream, CUdeviceptr x, std::uint64_t ns, unsigned threads = 256) {
  SLUICE_MUST(Call(Step{Kernel::kShort, x, 1, 0, ns, threads}).launch(stream));
}

/// Launches a kernel often enough for its duration to be learned.
void learn(CUstream stream, CUdeviceptr x, std::uint64_t ns, unsigned threads = 256) {
  for (int i = 0; i < 200; ++i) {
    spin(stream, x, ns, threads);
    SLUICE_MUST(cuStreamSynchronize(stream));
  }
}

Graph capture(CUstream stream, CUdeviceptr x, unsigned threads) {
  Graph graph;
  SLUICE_MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (int i = 0; i < 6; ++i) spin(stream, x, 10 * kUs, threads);
  SLUICE_MUST(cuStreamEndCapture(stream, graph.out()));
  return graph;
}

Exec instantiate(CUgraph graph) {
  Exec exec;
  SLUICE_MUST(cuGraphInstantiate(exec.out(), graph, 0));
  return exec;
}

// --- B1

/// The first shape's duration is known, the second one's is not.
void update(const std::string&) {
  enter(0);
  const CUdeviceptr x = memory();
  const Stream stream = new_stream();
  learn(stream, x, 10 * kUs, 256);
  const Graph known = capture(stream, x, 256);
  const Graph unknown = capture(stream, x, 128);
  for (const auto& [from, to] : {std::pair(&known, &unknown), std::pair(&unknown, &known)}) {
    const Exec exec = instantiate(*from);
    SLUICE_MUST(cuGraphLaunch(exec, stream));
    CUgraphExecUpdateResultInfo info{};
    const CUresult result = cuGraphExecUpdate(exec, *to, &info);
    say("update " + name_of(result));
    SLUICE_MUST(cuGraphLaunch(exec, stream));
    SLUICE_MUST(cuStreamSynchronize(stream));
  }
}

// --- B3

void cancel(const std::string&) {
  SLUICE_MUST(cuInit(0));
  SLUICE_MUST(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
  enter(0);
  const CUdeviceptr x = memory();
  static const Stream kStream = new_stream();
  static CUcontext context = nullptr;
  SLUICE_MUST(cuCtxGetCurrent(&context));
  spin(kStream, x, 500'000 * kUs);
  pthread_t thread{};
  pthread_create(
      &thread, nullptr,
      [](void*) -> void* {
        cuCtxSetCurrent(context);
        cuStreamSynchronize(kStream);
        return nullptr;
      },
      nullptr);
  std::this_thread::sleep_for(milliseconds(100));
  pthread_cancel(thread);
  void* ended = nullptr;
  pthread_join(thread, &ended);
  say(ended == PTHREAD_CANCELED ? "cancelled" : "returned");
  _exit(0);  // the cancelled thread may have left a lock of the driver taken
}

// --- B5, and processes that others need next to them

void idle(const std::string& device) {
  enter(std::atoi(device.c_str()));
  const Stream stream = new_stream();
  spin(stream, memory(), 10 * kUs);
  SLUICE_MUST(cuStreamSynchronize(stream));
  say("ready");
  wait_for_line();
}

void silent(const std::string&) {
  enter(0);
  const CUdeviceptr x = memory();
  const Stream stream = new_stream();
  for (int i = 0; i < 50; ++i) spin(stream, x, 10 * kUs);
  say("ready");
  wait_for_line();
}

/// Keeps the GPU busy, at most `kDepth` launches ahead of it, while `go_on` says so.
template <std::size_t kDepth>
void keep_busy(std::uint64_t ns, std::atomic<std::uint64_t>& done,
               const std::function<bool(std::uint64_t)>& go_on) {
  const CUdeviceptr x = memory();
  const Stream stream = new_stream();
  std::array<Event, kDepth> events;
  for (Event& event : events) event = new_event();
  for (std::uint64_t i = 0; go_on(i); ++i) {
    if (i >= kDepth) {
      SLUICE_MUST(cuEventSynchronize(events[i % kDepth]));
      ++done;
    }
    spin(stream, x, ns);
    SLUICE_MUST(cuEventRecord(events[i % kDepth], stream));
  }
  SLUICE_MUST(cuStreamSynchronize(stream));
}

void run_short(const std::string& count) {
  enter(0);
  say("ready");
  wait_for_line();
  const std::uint64_t launches = std::strtoull(count.c_str(), nullptr, 10);
  std::atomic<std::uint64_t> done = 0;
  keep_busy<256>(20 * kUs, done, [&](std::uint64_t i) { return i < launches; });
  say("launched");
  wait_for_line();
}

// --- B6

/// Prints the number of kernels done every 0.5 s.
void busy(const std::string& seconds) {
  enter(0);
  std::atomic<std::uint64_t> done = 0;
  std::atomic<bool> ended = false;
  const auto end = steady_clock::now() + std::chrono::seconds(std::atoi(seconds.c_str()));
  std::thread reporter([&] {
    while (!ended) {
      say("done " + std::to_string(done));
      std::this_thread::sleep_for(milliseconds(500));
    }
  });
  say("ready");
  keep_busy<32>(1000 * kUs, done, [&](std::uint64_t) { return steady_clock::now() < end; });
  ended = true;
  reporter.join();
}

// --- B7

/// Other devices may be used without anything of the program ever running there.
void use_second_device() {
  CUcontext first = nullptr;
  CUcontext second = nullptr;
  SLUICE_MUST(cuCtxGetCurrent(&first));
  SLUICE_MUST(cuDevicePrimaryCtxRetain(&second, 1));
  auto* enable =
      reinterpret_cast<decltype(&cuCtxEnablePeerAccess)>(look_up("cuCtxEnablePeerAccess", 4000));
  const CUresult peers = enable == nullptr ? CUDA_ERROR_NOT_SUPPORTED : enable(second, 0);
  say("peer access " + name_of(peers));
}

void jobs(const std::string& seconds_and_second) {
  enter(0);
  if (seconds_and_second.find("second") != std::string::npos) use_second_device();
  const CUdeviceptr x = memory();
  const Stream stream = new_stream();
  say("ready");
  const auto end =
      steady_clock::now() + std::chrono::seconds(std::atoi(seconds_and_second.c_str()));
  for (auto next = steady_clock::now(); next < end; next += milliseconds(20)) {
    std::this_thread::sleep_until(next);
    spin(stream, x, 1000 * kUs);
    SLUICE_MUST(cuStreamSynchronize(stream));
  }
}

// --- B2

void reset(const std::string&) {
  enter(0);
  const Stream on_first = new_stream();
  learn(on_first, memory(), 10 * kUs);
  enter(1);
  const CUdeviceptr x = memory();
  const Stream stream = new_stream();
  learn(stream, x, 10 * kUs);
  const Graph graph = capture(stream, x, 256);
  const Exec exec = instantiate(graph);
  const auto work = [&](const std::string& when) {
    const CUresult launched = cuGraphLaunch(exec, stream);
    for (int i = 0; i < 1000; ++i) spin(stream, x, 50 * kUs);
    const CUresult synchronised = cuStreamSynchronize(stream);
    say(when + " " + name_of(launched) + " " + name_of(synchronised));
    wait_for_line();
  };
  work("before");
  SLUICE_MUST(cuDevicePrimaryCtxReset(0));
  work("after");
}

using Case = void (*)(const std::string& argument);
const std::map<std::string, Case>& cases() {
  static const std::map<std::string, Case> kAll{
      {"update", update},   {"cancel", cancel}, {"idle", idle}, {"silent", silent},
      {"short", run_short}, {"busy", busy},     {"jobs", jobs}, {"reset", reset}};
  return kAll;
}

}  // namespace
}  // namespace sluice::graphs

int main(int argc, char** argv) {
  const auto found = sluice::graphs::cases().find(argc > 1 ? argv[1] : "");
  if (found == sluice::graphs::cases().end() || argc > 4) {
    std::fprintf(stderr, "usage: review_cases CASE [ARGUMENT...]\n");
    return 2;
  }
  std::string argument = argc > 2 ? argv[2] : "";
  if (argc > 3) argument += std::string(" ") + argv[3];
  try {
    found->second(argument);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "review_cases: %s\n", error.what());
    return 1;
  }
  return 0;
}
