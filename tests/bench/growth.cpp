// Whether the interposer's cost or memory grows with the number of calls that a program makes, or
// with what it keeps alive. Each kind of call runs in a process of its own on the recording driver,
// without the preload and with it, as best effort below a critical client and as critical. Prints
// the processor time of a round in the first and in the last tenth, and the resident memory after
// the first tenth and at the end. A growth that the plain run has too is the driver's.
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/child.hpp"
#include "base/clock.hpp"
#include "base/command_line.hpp"
#include "tests/support/attached_client.hpp"
#include "tests/support/controller.hpp"
#include "tests/support/standins/fakecuda/fakecuda.hpp"

namespace {

using namespace sluice;

void kernel(std::uintptr_t function, CUstream stream = nullptr) {
  ::cuLaunchKernel(reinterpret_cast<CUfunction>(function), 1, 1, 1, 1, 1, 1, 0, stream, nullptr,
                   nullptr);
}

CUstream make_stream() {
  CUstream stream = nullptr;
  ::cuStreamCreate(&stream, 0);
  return stream;
}

CUgraph capture(CUstream stream, int kernels) {
  ::cuStreamBeginCapture_v2(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  for (int i = 1; i <= kernels; ++i) kernel(static_cast<std::uintptr_t>(i), stream);
  CUgraph graph = nullptr;
  ::cuStreamEndCapture(stream, &graph);
  return graph;
}

/// What a program does in each round, and what it has made before.
struct Program {
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUstream busy = nullptr;
  CUgraph graph = nullptr;
  std::vector<CUgraphExec> kept;

  Program() {
    ::cuDevicePrimaryCtxRetain(&context, 0);
    ::cuCtxSetCurrent(context);
    stream = make_stream();
    busy = make_stream();
    kernel(1, stream);
    graph = capture(stream, 10);
  }
  CUgraphExec instantiate() const {
    CUgraphExec executable = nullptr;
    ::cuGraphInstantiateWithFlags(&executable, graph, 0);
    return executable;
  }
};

using Round = void (*)(Program&, long);

const std::map<std::string, Round> kKinds{
    {"launch", [](Program& p, long) { kernel(1, p.stream); }},
    {"launches", [](Program& p, long i) { kernel(static_cast<std::uintptr_t>(1 + i), p.stream); }},
    {"synchronise",
     [](Program& p, long) {
       kernel(1, p.stream);
       ::cuStreamSynchronize(p.stream);
     }},
    {"next-to-busy",
     [](Program& p, long) {  // another stream stays busy
       kernel(2, p.busy);
       kernel(1, p.stream);
       ::cuStreamSynchronize(p.stream);
     }},
    {"stream",
     [](Program&, long) {
       CUstream made = make_stream();
       kernel(1, made);
       ::cuStreamDestroy_v2(made);
     }},
    {"event",
     [](Program& p, long) {
       CUevent event = nullptr;
       ::cuEventCreate(&event, 0);
       ::cuEventRecord(event, p.stream);
       ::cuEventDestroy_v2(event);
     }},
    {"graph",
     [](Program& p, long) {
       CUgraphExec executable = p.instantiate();
       ::cuGraphLaunch(executable, p.stream);
       ::cuGraphExecDestroy(executable);
     }},
    {"graphs-kept",
     [](Program& p, long) {
       p.kept.push_back(p.instantiate());
       ::cuGraphLaunch(p.kept.back(), p.stream);
     }},
    {"capture", [](Program& p, long) { ::cuGraphDestroy(capture(p.stream, 1)); }},
    {"module",
     [](Program& p, long i) {
       CUmodule module = nullptr;
       ::cuModuleLoadData(&module, "module");
       kernel(static_cast<std::uintptr_t>(1'000'000 + 64 * i), p.stream);
       ::cuModuleUnload(module);
     }},
    {"context",
     [](Program& p, long) {
       CUcontext made = nullptr;
       ::cuCtxCreate_v4(&made, nullptr, 0, 0);
       kernel(1);
       ::cuCtxDestroy_v2(made);
       ::cuCtxSetCurrent(p.context);
     }},
    {"allocation",
     [](Program&, long) {
       CUdeviceptr memory = 0;
       ::cuMemAlloc_v2(&memory, 4096);
       ::cuMemFree_v2(memory);
     }},
    {"thread",
     [](Program& p, long) {
       std::thread([&p] {
         ::cuCtxSetCurrent(p.context);
         ::cuLaunchKernel_ptsz(nullptr, 1, 1, 1, 1, 1, 1, 0, nullptr, nullptr, nullptr);
       }).join();
     }},
};

double resident_mb() {
  long pages = 0;
  long resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE)) / 1e6;
}

double processor_s() { return static_cast<double>(base::clock_ns(CLOCK_PROCESS_CPUTIME_ID)) / 1e9; }

/// In the process of one kind. Prints one line.
int measure(const std::string& kind, long rounds) {
  const Round round = kKinds.at(kind);
  Program program;
  const long tenth = std::max(rounds / 10, 1L);
  double begin = processor_s();
  double first = 0;
  double early_mb = 0;
  for (long i = 0; i < rounds; ++i) {
    round(program, i);
    if (i % 64 == 0) fake::clear();  // or its record would be what grows
    if (i + 1 == tenth) {
      first = processor_s() - begin;
      early_mb = resident_mb();
    }
    if (i + 1 == rounds - tenth) begin = processor_s();
  }
  const double last = processor_s() - begin;
  const double to_us = 1e6 / static_cast<double>(tenth);
  const char* mode = std::getenv("SLUICE_GROWTH_MODE");
  std::printf("%-13s %-12s %9ld %9.2f %9.2f %6.2f %9.1f %9.1f\n", kind.c_str(), mode, rounds,
              first * to_us, last * to_us, last / first, early_mb, resident_mb());
  std::fflush(stdout);
  _exit(0);
}

int run(const std::string& kind, long rounds, const std::string& mode) {
  std::optional<test::Session> session;
  std::unique_ptr<test::Process> controller;
  std::unique_ptr<test::AttachedClient> above;
  std::vector<std::string> variables{"SLUICE_GROWTH_MODE=" + mode, "SLUICE_LOG=off"};
  if (mode != "plain") {
    controller = test::start_controller(session.emplace("growth"));
    variables.emplace_back("LD_PRELOAD=" SLUICE_INTERCEPT_LIBRARY);
    variables.emplace_back("SLUICE_POLICY=device:200us");
    variables.emplace_back(mode == "critical" ? "SLUICE_PRIORITY=9" : "SLUICE_PRIORITY=0");
  }
  if (mode == "best-effort") above = std::make_unique<test::AttachedClient>(session->name(), 200);
  return base::run_to_end({"/proc/self/exe", kind, "--rounds", std::to_string(rounds)}, variables);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("How the cost of calls grows under the interposer, on the recording driver.");
  std::vector<std::string> kinds;
  long rounds = 100'000;
  app.add_option("KIND", kinds, "Kinds of calls; all if none is named");
  app.add_option("--rounds", rounds, "Rounds of each kind")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  for (const std::string& kind : kinds) {
    if (!kKinds.contains(kind))
      return std::fprintf(stderr, "growth: no kind %s\n", kind.c_str()), 2;
  }
  if (std::getenv("SLUICE_GROWTH_MODE") != nullptr) return measure(kinds.at(0), rounds);
  if (kinds.empty()) {
    for (const auto& [kind, round] : kKinds) kinds.push_back(kind);
  }
  std::printf("%-13s %-12s %9s %9s %9s %6s %9s %9s\n", "KIND", "MODE", "ROUNDS", "FIRST us",
              "LAST us", "RATIO", "RSS 10 %", "RSS END");
  std::fflush(stdout);  // the children write to the same file
  int failed = 0;
  for (const std::string& kind : kinds) {
    for (const char* mode : {"plain", "best-effort", "critical"}) failed |= run(kind, rounds, mode);
  }
  return failed == 0 ? 0 : 1;
}
