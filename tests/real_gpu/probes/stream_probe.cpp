// stream_probe: facts about queries of default streams and the host cost of driver calls, for the
// design of the interposer. Prints facts and no verdict. Run by probes.sh without Sluice.
#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/real_gpu/graphs/kernels.hpp"

namespace sluice::graphs {
namespace {

using std::chrono::duration;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::steady_clock;
using Time = steady_clock::time_point;
constexpr std::uint64_t kMs = 1'000'000;

double ms_since(Time begin) {
  return duration<double, std::milli>(steady_clock::now() - begin).count();
}

CUdeviceptr memory() {
  CUdeviceptr at = 0;
  SLUICE_MUST(cuMemAlloc(&at, kWords * sizeof(std::uint32_t)));
  return at;
}

void spin(CUstream stream, CUdeviceptr x, std::uint64_t ns) {
  SLUICE_MUST(Call(Step{Kernel::kShort, x, 1, 0, ns}).launch(stream));
}

// --- P1: what a query of the legacy default stream says and disturbs.

struct Answers {
  unsigned busy = 0;
  unsigned idle = 0;
  double last_busy_ms = -1;
  double first_idle_ms = -1;
  double longest_call_ms = 0;
  std::string other;
};

/// Asks about `asked` every ms until `ended` and once more.
Answers ask(CUstream asked, Time begin, const std::atomic<bool>& ended) {
  Answers answers;
  for (bool last = false; !last;) {
    last = ended;
    const Time before = steady_clock::now();
    const CUresult result = cuStreamQuery(asked);
    answers.longest_call_ms = std::max(answers.longest_call_ms, ms_since(before));
    if (result == CUDA_ERROR_NOT_READY) {
      ++answers.busy;
      answers.last_busy_ms = ms_since(begin);
    } else if (result == CUDA_SUCCESS) {
      if (answers.idle++ == 0) answers.first_idle_ms = ms_since(begin);
    } else {
      answers.other = name_of(result);
    }
    std::this_thread::sleep_for(milliseconds(1));
  }
  return answers;
}

struct Named {
  const char* name;
  CUstream stream;
};

/// Thread A runs a kernel of 300 ms on `run_on`, this thread asks about `asked`.
void query_beside_kernel(const Named& run_on, const Named& asked, CUdeviceptr x) {
  CUcontext context = nullptr;
  SLUICE_MUST(cuCtxGetCurrent(&context));
  std::atomic<bool> started = false;
  std::atomic<bool> ended = false;
  double kernel_ms = 0;
  const Time begin = steady_clock::now();
  std::thread a([&] {
    SLUICE_MUST(cuCtxSetCurrent(context));
    spin(run_on.stream, x, 300 * kMs);
    started = true;
    SLUICE_MUST(cuStreamSynchronize(run_on.stream));
    kernel_ms = ms_since(begin);
    ended = true;
  });
  while (!started) std::this_thread::yield();
  const Answers answers = ask(asked.stream, begin, ended);
  a.join();
  std::printf(
      "P1 kernel of 300 ms on %-22s (done at %.0f ms), query of %-8s: NOT_READY %u times (last at "
      "%.0f ms), SUCCESS %u times (first at %.0f ms), longest call %.3f ms%s%s\n",
      run_on.name, kernel_ms, asked.name, answers.busy, answers.last_busy_ms, answers.idle,
      answers.first_idle_ms, answers.longest_call_ms, answers.other.empty() ? "" : ", ",
      answers.other.c_str());
}

void what_a_query_says() {
  const CUdeviceptr x = memory();
  const Stream blocking = new_stream(CU_STREAM_DEFAULT);
  const Stream independent = new_stream();
  const std::array<Named, 4> kernels{{{"CU_STREAM_PER_THREAD", CU_STREAM_PER_THREAD},
                                      {"a blocking stream", blocking},
                                      {"a non-blocking stream", independent},
                                      {"CU_STREAM_LEGACY", CU_STREAM_LEGACY}}};
  const std::array<Named, 3> questions{
      {{"LEGACY", CU_STREAM_LEGACY}, {"nullptr", nullptr}, {"PER_THREAD", CU_STREAM_PER_THREAD}}};
  for (const Named& kernel : kernels) {
    for (const Named& asked : questions) query_beside_kernel(kernel, asked, x);
  }
  SLUICE_MUST(cuMemFree(x));
}

using Between = std::function<void()>;

/// 20 kernels of 5 ms on each of two streams, launched in turn with `between` after each launch,
/// while another thread does `aside` every ms. About 100 ms if the streams overlap, 200 if they do
/// not.
double two_streams(CUstream one, CUstream two, const Between& between, const Between& aside) {
  CUcontext context = nullptr;
  SLUICE_MUST(cuCtxGetCurrent(&context));
  const CUdeviceptr x = memory();
  const CUdeviceptr y = memory();
  std::atomic<bool> ended = false;
  std::thread b([&] {
    SLUICE_MUST(cuCtxSetCurrent(context));
    while (!ended) {
      aside();
      std::this_thread::sleep_for(milliseconds(1));
    }
  });
  const Time begin = steady_clock::now();
  for (int i = 0; i < 20; ++i) {
    spin(one, x, 5 * kMs);
    between();
    spin(two, y, 5 * kMs);
    between();
    // A launch per kernel's time, so that launches and questions alternate.
    if (i % 4 == 3) std::this_thread::sleep_for(milliseconds(4));
  }
  SLUICE_MUST(cuStreamSynchronize(one));
  SLUICE_MUST(cuStreamSynchronize(two));
  const double ms = ms_since(begin);
  ended = true;
  b.join();
  SLUICE_MUST(cuMemFree(x));
  SLUICE_MUST(cuMemFree(y));
  return ms;
}

void what_a_query_disturbs() {
  const Stream one = new_stream(CU_STREAM_DEFAULT);
  const Stream two = new_stream(CU_STREAM_DEFAULT);
  const Event event = new_event();
  const auto nothing = [] {};
  const auto query = [](CUstream asked) { return [asked] { (void)cuStreamQuery(asked); }; };
  const auto record = [&event] { SLUICE_MUST(cuEventRecord(event, CU_STREAM_LEGACY)); };
  const auto measure = [&](const char* what, const Between& between, const Between& aside) {
    std::printf("P1 2 x 20 kernels of 5 ms on two blocking streams, %-46s: %.0f ms\n", what,
                two_streams(one, two, between, aside));
  };
  measure("no query", nothing, nothing);
  measure("another thread queries LEGACY", nothing, query(CU_STREAM_LEGACY));
  measure("another thread queries nullptr", nothing, query(nullptr));
  measure("LEGACY queried after each launch", query(CU_STREAM_LEGACY), nothing);
  measure("nullptr queried after each launch", query(nullptr), nothing);
  measure("an event recorded on LEGACY after each launch", record, nothing);
  measure("another thread records an event on LEGACY", nothing, record);
}

// --- P2: host cost of calls.

/// ns per call: the median of 200 rounds of 50 calls, and the quickest round.
void cost(const char* what, const std::function<CUresult()>& call, CUstream drain = nullptr) {
  constexpr int kRounds = 200;
  constexpr int kCalls = 50;
  std::vector<double> ns;
  for (int round = 0; round < kRounds; ++round) {
    SLUICE_MUST(call());
    const Time begin = steady_clock::now();
    for (int i = 0; i < kCalls; ++i) (void)call();
    ns.push_back(duration<double, std::nano>(steady_clock::now() - begin).count() / kCalls);
    if (drain != nullptr) SLUICE_MUST(cuStreamSynchronize(drain));
  }
  std::sort(ns.begin(), ns.end());
  std::printf("P2 %-46s %8.1f ns (quickest %.1f)\n", what, ns[kRounds / 2], ns[0]);
}

CUgraphExec graph_of(CUstream stream, CUdeviceptr x, int kernels) {
  Graph graph;
  CUgraphExec exec = nullptr;
  SLUICE_MUST(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
  for (int i = 0; i < kernels; ++i) spin(stream, x, 1);
  SLUICE_MUST(cuStreamEndCapture(stream, graph.out()));
  SLUICE_MUST(cuGraphInstantiate(&exec, graph, 0));
  return exec;
}

void cost_of_lookups(CUstream stream) {
  CUcontext context = nullptr;
  unsigned long long id = 0;
  unsigned flags = 0;
  CUdevice device = 0;
  CUstreamCaptureStatus status{};
  const Event event = new_event();
  cost("an empty call", [] { return CUDA_SUCCESS; });
  cost("cuCtxGetCurrent", [&] { return cuCtxGetCurrent(&context); });
  cost("cuCtxGetDevice", [&] { return cuCtxGetDevice(&device); });
  cost("cuCtxGetId(current)", [&] { return cuCtxGetId(context, &id); });
  cost("cuCtxSetCurrent(the current one)", [&] { return cuCtxSetCurrent(context); });
  cost("cuStreamGetCtx(stream)", [&] { return cuStreamGetCtx(stream, &context); });
  cost("cuStreamGetCtx(nullptr)", [&] { return cuStreamGetCtx(nullptr, &context); });
  cost("cuStreamGetId(stream)", [&] { return cuStreamGetId(stream, &id); });
  cost("cuStreamGetId(nullptr)", [&] { return cuStreamGetId(nullptr, &id); });
  cost("cuStreamGetId(PER_THREAD)", [&] { return cuStreamGetId(CU_STREAM_PER_THREAD, &id); });
  cost("cuStreamGetFlags(stream)", [&] { return cuStreamGetFlags(stream, &flags); });
  cost("cuStreamIsCapturing(stream)", [&] { return cuStreamIsCapturing(stream, &status); });
  cost("cuStreamIsCapturing(nullptr)", [&] { return cuStreamIsCapturing(nullptr, &status); });
  cost("cuThreadExchangeStreamCaptureMode", [] {
    auto mode = CU_STREAM_CAPTURE_MODE_GLOBAL;
    return cuThreadExchangeStreamCaptureMode(&mode);
  });
  cost("cuStreamQuery(stream), idle", [&] { return cuStreamQuery(stream); });
  cost("cuStreamQuery(nullptr), idle", [] { return cuStreamQuery(nullptr); });
  cost(
      "cuEventRecord(stream), idle", [&] { return cuEventRecord(event, stream); }, stream);
  cost("cuEventQuery, done", [&] { return cuEventQuery(event); });
}

void cost_of_launches(CUstream stream, CUdeviceptr x) {
  const Event event = new_event();
  Call call(Step{Kernel::kShort, x, 1, 0, 1});
  cost(
      "cuLaunchKernel, 64 x 256 threads", [&] { return call.launch(stream); }, stream);
  cost(
      "cuLaunchKernel and cuEventRecord",
      [&] {
        SLUICE_MUST(call.launch(stream));
        return cuEventRecord(event, stream);
      },
      stream);
  cost(
      "cuLaunchKernel and cuStreamQuery",
      [&] {
        SLUICE_MUST(call.launch(stream));
        const CUresult result = cuStreamQuery(stream);
        return result == CUDA_ERROR_NOT_READY ? CUDA_SUCCESS : result;
      },
      stream);
  for (const int kernels : {1, 10, 100}) {
    const Exec exec(graph_of(stream, x, kernels));
    cuuint64_t flags = 0;
    cost(("cuGraphExecGetFlags, " + std::to_string(kernels) + " kernels").c_str(),
         [&] { return cuGraphExecGetFlags(exec, &flags); });
    cost(("cuGraphLaunch, " + std::to_string(kernels) + " kernels").c_str(),
         [&] { return cuGraphLaunch(exec, stream); }, stream);
  }
}

void probe() {
  enter_device();
  load_kernels();
  const CUdeviceptr x = memory();
  warm_up(x);
  what_a_query_says();
  what_a_query_disturbs();
  const Stream stream = new_stream();
  cost_of_lookups(stream);
  cost_of_launches(stream, x);
}

}  // namespace
}  // namespace sluice::graphs

int main() {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    sluice::graphs::probe();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "stream_probe: %s\n", error.what());
    return 1;
  }
  return 0;
}
