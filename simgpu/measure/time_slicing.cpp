// sluice-simgpu-table: measures how long a tiny critical kernel takes while another process has
// kernels queued, time-sliced, with and without a wait in front of every kernel. Prints the rows of
// simgpu/README.md. Uses nothing of Sluice but base/: the gate is a word of shared memory that the
// critical process sets around its kernel.
//
// Each row has two figures. The time to the kernel's end on the simulated GPU's clock does not
// depend on how busy this machine is. The time to the return of synchronise does.
#include <cuda.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "base/statistics.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr const char* kModule =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry sluice_spin(.param .u64 ns)\n{\n  ret;\n}\n";

// Shared by both processes.
struct Shared {
  std::atomic<std::uint64_t> gate;
  std::atomic<std::uint32_t> ready;
};

struct Load {
  const char* name;
  int in_flight;
  std::uint64_t kernel_us;
  bool gated;
  double p50_h200;
  double p99_h200;
};

void require(CUresult status, const char* call) {
  if (status == CUDA_SUCCESS) return;
  std::fprintf(stderr, "sluice-simgpu-table: %s failed with %d\n", call, status);
  std::exit(1);
}
#define SLUICE_REQUIRE(call) require(call, #call)

struct Gpu {
  Gpu() {
    SLUICE_REQUIRE(cuInit(0));
    SLUICE_REQUIRE(cuDevicePrimaryCtxRetain(&context, 0));
    SLUICE_REQUIRE(cuCtxSetCurrent(context));
    SLUICE_REQUIRE(cuModuleLoadData(&module, kModule));
    SLUICE_REQUIRE(cuModuleGetFunction(&spin, module, "sluice_spin"));
    SLUICE_REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  void launch(std::uint64_t ns) const {
    void* arguments[] = {&ns};
    SLUICE_REQUIRE(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  }
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  CUstream stream = nullptr;
};

double scale_of_device() {
  char name[128] = "";
  SLUICE_REQUIRE(cuDeviceGetName(name, sizeof name, 0));
  const char* scale = std::strstr(name, "(scale ");
  return scale != nullptr ? std::atof(scale + std::strlen("(scale ")) : 1;
}

// Keeps `in_flight` kernels queued until this process is killed.
[[noreturn]] void run_load(const Load& load, Shared& shared) {
  const Gpu gpu;
  SLUICE_REQUIRE(cuMemHostRegister(&shared, sizeof shared, CU_MEMHOSTREGISTER_PORTABLE));
  CUdeviceptr gate = 0;
  SLUICE_REQUIRE(cuMemHostGetDevicePointer(&gate, &shared.gate, 0));
  std::vector<CUevent> ends(static_cast<std::size_t>(load.in_flight));
  for (CUevent& end : ends) SLUICE_REQUIRE(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
  shared.ready = 1;
  for (std::size_t i = 0;; i = (i + 1) % ends.size()) {
    SLUICE_REQUIRE(cuEventSynchronize(ends[i]));
    if (load.gated) {
      SLUICE_REQUIRE(cuStreamWaitValue64(gpu.stream, gate, 0, CU_STREAM_WAIT_VALUE_EQ));
    }
    gpu.launch(load.kernel_us * 1000);
    SLUICE_REQUIRE(cuEventRecord(ends[i], gpu.stream));
  }
}

struct Sample {
  double called_ns;
  double returned_ns;
};

double now_ns() {
  return std::chrono::duration<double, std::nano>(Clock::now().time_since_epoch()).count();
}

std::vector<Sample> run_critical(const Gpu& gpu, double scale, int samples, Shared& shared) {
  std::vector<Sample> taken;
  std::uint32_t seed = 12345;
  for (int i = 0; i < samples; ++i) {
    seed = seed * 1664525U + 1013904223U;
    const double pause_us = 3000 + (seed >> 8U) % 2000;  // every 3 to 5 ms
    std::this_thread::sleep_for(Microseconds(pause_us * scale));
    const double called = now_ns();
    shared.gate = 1;
    gpu.launch(2000);
    SLUICE_REQUIRE(cuStreamSynchronize(gpu.stream));
    taken.push_back({called, now_ns()});
    shared.gate = 0;
  }
  return taken;
}

// Starts the load in a child that has not used CUDA yet: a process cannot use CUDA on both sides of
// a fork.
pid_t start_load(const Load& load, Shared& shared) {
  shared.gate = 0;
  shared.ready = 0;
  const pid_t child = fork();
  if (child == 0) run_load(load, shared);
  while (shared.ready == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return child;
}

// The ends of this process's kernels on the GPU's clock, from the log. The GPU process writes the
// last lines when it is next idle.
std::vector<double> kernel_ends(const std::string& log, std::size_t count) {
  std::vector<double> ends;
  for (int i = 0; i < 200 && ends.size() < count; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    ends.clear();
    std::ifstream file(log);
    for (std::string line; std::getline(file, line);) {
      std::istringstream in(line);
      std::string kind;
      long pid = 0;
      double stream = 0;
      double sequence = 0;
      double start = 0;
      double end = 0;
      in >> kind >> pid >> stream >> sequence >> start >> end;
      if (kind == "kernel" && pid == getpid()) ends.push_back(end);
    }
  }
  return ends;
}

struct Figures {
  double p50;
  double p99;
};

Figures figures_of(const std::vector<double>& values) {
  return {sluice::base::percentile(values, 0.5), sluice::base::percentile(values, 0.99)};
}

void report(const Load& load, const std::vector<Sample>& samples, const std::vector<double>& ends,
            double scale) {
  std::vector<double> on_gpu;
  std::vector<double> seen;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    on_gpu.push_back((ends.at(i) - samples[i].called_ns) / scale / 1000);
    seen.push_back((samples[i].returned_ns - samples[i].called_ns) / scale / 1000);
  }
  const Figures gpu = figures_of(on_gpu);
  const Figures process = figures_of(seen);
  std::printf("| %s | %.0f / %.0f | %.0f / %.0f | %+.0f %% / %+.0f %% | %.0f / %.0f |\n", load.name,
              load.p50_h200, load.p99_h200, gpu.p50, gpu.p99, 100 * (gpu.p50 / load.p50_h200 - 1),
              100 * (gpu.p99 / load.p99_h200 - 1), process.p50, process.p99);
  std::fflush(stdout);
}

void measure_in_child(const Load& load, int samples, const std::string& log, Shared& shared) {
  const pid_t background = load.in_flight > 0 ? start_load(load, shared) : -1;
  const pid_t critical = fork();
  if (critical == 0) {
    const Gpu gpu;
    const double scale = scale_of_device();
    const std::vector<Sample> taken = run_critical(gpu, scale, samples, shared);
    if (background > 0) kill(background, SIGKILL);
    report(load, taken, kernel_ends(log, taken.size()), scale);
    _exit(0);
  }
  waitpid(critical, nullptr, 0);
  if (background > 0) waitpid(background, nullptr, 0);
}

// A session for this run, with a log, so that the GPU is otherwise idle.
std::string make_session() {
  std::string folder = "/tmp/sluice-simgpu-table-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) std::exit(1);
  setenv("SLUICE_SESSION", ("table-" + std::to_string(getpid())).c_str(), 1);
  setenv("SLUICE_SIM_LOG", (folder + "/gpu.log").c_str(), 1);
  return folder;
}

}  // namespace

int main(int argc, char** argv) {
  const int samples = argc > 1 ? std::atoi(argv[1]) : 300;
  if (samples < 10) {
    std::fputs("usage: sluice-simgpu-table [SAMPLES (at least 10) [PART OF A ROW'S NAME]]\n",
               stderr);
    return 2;
  }
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto& shared = *new (memory) Shared;
  const std::string folder = make_session();
  std::puts("Latency of one 2 us kernel every 3-5 ms, in us, p50 / p99");
  std::puts(
      "| other process | H200 | *simulated*, GPU clock | difference | *simulated*, as seen |");
  std::puts("| --- | --- | --- | --- | --- |");
  std::fflush(stdout);
  const Load loads[] = {
      {"nothing", 0, 0, false, 23, 60},
      {"1 x 50 us", 1, 50, false, 184, 222},
      {"64 x 50 us", 64, 50, false, 1303, 2272},
      {"64 x 50 us, a wait before each", 64, 50, true, 170, 196},
      {"1 x 200 us", 1, 200, false, 258, 360},
      {"64 x 200 us", 64, 200, false, 1297, 2272},
      {"64 x 200 us, a wait before each", 64, 200, true, 240, 345},
      {"16 x 1000 us", 16, 1000, false, 1295, 2267},
      {"16 x 1000 us, a wait before each", 16, 1000, true, 599, 1129},
  };
  const char* only = argc > 2 ? argv[2] : "";
  for (const Load& load : loads) {
    if (std::strstr(load.name, only) == nullptr) continue;
    measure_in_child(load, samples, folder + "/gpu.log", shared);
  }
  std::filesystem::remove_all(folder);
}
