// sluice-simgpu-table: how long one tiny critical kernel takes beside the queued kernels of another
// process, time-sliced, with and without a wait in front of every kernel. Prints the rows of
// simgpu/README.md. Needs nothing of Sluice: the gate is a word of shared memory that the critical
// process sets around its kernel.
#include <cuda.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Microseconds = std::chrono::duration<double, std::micro>;

constexpr const char* kModule =
    ".version 7.8\n.target sm_80\n.address_size 64\n"
    ".visible .entry sluice_spin(.param .u64 ns)\n{\n  ret;\n}\n";

// Shared by the two processes.
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
#define REQUIRE(call) require(call, #call)

struct Gpu {
  Gpu() {
    REQUIRE(cuInit(0));
    REQUIRE(cuDevicePrimaryCtxRetain(&context, 0));
    REQUIRE(cuCtxSetCurrent(context));
    REQUIRE(cuModuleLoadData(&module, kModule));
    REQUIRE(cuModuleGetFunction(&spin, module, "sluice_spin"));
    REQUIRE(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  }
  void launch(std::uint64_t ns) const {
    void* arguments[] = {&ns};
    REQUIRE(cuLaunchKernel(spin, 1, 1, 1, 1, 1, 1, 0, stream, arguments, nullptr));
  }
  CUcontext context = nullptr;
  CUmodule module = nullptr;
  CUfunction spin = nullptr;
  CUstream stream = nullptr;
};

double scale_of_device() {
  char name[128] = "";
  REQUIRE(cuDeviceGetName(name, sizeof name, 0));
  const char* scale = std::strstr(name, "(scale ");
  return scale != nullptr ? std::atof(scale + std::strlen("(scale ")) : 1;
}

// Keeps `in_flight` kernels queued until killed.
[[noreturn]] void run_load(const Load& load, Shared& shared) {
  const Gpu gpu;
  REQUIRE(cuMemHostRegister(&shared, sizeof shared, CU_MEMHOSTREGISTER_PORTABLE));
  CUdeviceptr gate = 0;
  REQUIRE(cuMemHostGetDevicePointer(&gate, &shared.gate, 0));
  std::vector<CUevent> ends(static_cast<std::size_t>(load.in_flight));
  for (CUevent& end : ends) REQUIRE(cuEventCreate(&end, CU_EVENT_DISABLE_TIMING));
  shared.ready = 1;
  for (std::size_t i = 0;; i = (i + 1) % ends.size()) {
    REQUIRE(cuEventSynchronize(ends[i]));
    if (load.gated) {
      REQUIRE(cuStreamWaitValue64(gpu.stream, gate, 0, CU_STREAM_WAIT_VALUE_EQ));
    }
    gpu.launch(load.kernel_us * 1000);
    REQUIRE(cuEventRecord(ends[i], gpu.stream));
  }
}

// Latencies of launch + synchronise in simulated us.
std::vector<double> run_critical(const Gpu& gpu, double scale, int samples, Shared& shared) {
  std::vector<double> latencies;
  std::uint32_t seed = 12345;
  for (int i = 0; i < samples; ++i) {
    seed = seed * 1664525U + 1013904223U;
    const double pause_us = 3000 + (seed >> 8U) % 2000;  // every 3 to 5 ms
    std::this_thread::sleep_for(Microseconds(pause_us * scale));
    const Clock::time_point start = Clock::now();
    shared.gate = 1;
    gpu.launch(2000);
    REQUIRE(cuStreamSynchronize(gpu.stream));
    latencies.push_back(Microseconds(Clock::now() - start).count() / scale);
    shared.gate = 0;
  }
  std::sort(latencies.begin(), latencies.end());
  return latencies;
}

// A child without a driver of its own yet: one process cannot go on with CUDA after a fork.
pid_t start_load(const Load& load, Shared& shared) {
  shared.gate = 0;
  shared.ready = 0;
  const pid_t child = fork();
  if (child == 0) run_load(load, shared);
  while (shared.ready == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  return child;
}

void measure_in_child(const Load& load, int samples, Shared& shared) {
  const pid_t background = load.in_flight > 0 ? start_load(load, shared) : -1;
  const pid_t critical = fork();
  if (critical == 0) {
    const Gpu gpu;
    const double scale = scale_of_device();
    const std::vector<double> sorted = run_critical(gpu, scale, samples, shared);
    const double p50 = sorted[sorted.size() / 2];
    const double p99 = sorted[sorted.size() * 99 / 100];
    std::printf("| %s | %.0f / %.0f | %.0f / %.0f | %+.0f %% / %+.0f %% |\n", load.name, p50, p99,
                load.p50_h200, load.p99_h200, 100 * (p50 / load.p50_h200 - 1),
                100 * (p99 / load.p99_h200 - 1));
    std::fflush(stdout);
    _exit(0);
  }
  waitpid(critical, nullptr, 0);
  if (background < 0) return;
  kill(background, SIGKILL);
  waitpid(background, nullptr, 0);
}

}  // namespace

int main(int argc, char** argv) {
  const int samples = argc > 1 ? std::atoi(argv[1]) : 300;
  if (samples < 10) {
    std::fputs("usage: sluice-simgpu-table [SAMPLES, at least 10]\n", stderr);
    return 2;
  }
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto& shared = *new (memory) Shared;
  std::puts("Latency of one 2 us kernel every 3-5 ms, simulated us, p50 / p99");
  std::puts("| beside it | simulated | H200 | difference |\n| --- | --- | --- | --- |");
  std::fflush(stdout);
  const Load loads[] = {
      {"nothing", 0, 0, false, 23, 60},
      {"1 x 50 us", 1, 50, false, 184, 222},
      {"2 x 50 us", 2, 50, false, 235, 264},
      {"64 x 50 us", 64, 50, false, 1303, 2272},
      {"64 x 50 us, a wait before each", 64, 50, true, 170, 196},
      {"1 x 200 us", 1, 200, false, 258, 360},
      {"64 x 200 us", 64, 200, false, 1297, 2272},
      {"64 x 200 us, a wait before each", 64, 200, true, 240, 345},
      {"16 x 1000 us", 16, 1000, false, 1295, 2267},
      {"16 x 1000 us, a wait before each", 16, 1000, true, 599, 1129},
  };
  for (const Load& load : loads) measure_in_child(load, samples, shared);
}
