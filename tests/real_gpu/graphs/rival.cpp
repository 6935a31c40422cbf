// graph_rival FILE: a critical process next to graph_cases. While FILE exists, it runs a short job
// about every 2 ms and announces every second job 1 ms in advance. Prints "ready" when it has a
// GPU, and the number of jobs at the end.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <random>
#include <thread>

#include "sluice/sluice.h"
#include "tests/real_gpu/graphs/kernels.hpp"

namespace sluice::graphs {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

void run_job(CUstream stream, CUdeviceptr buffer, std::uint64_t announced) {
  const std::uint64_t job = sluice_job_begin(announced);
  for (std::uint32_t i = 0; i < 3; ++i) {
    SLUICE_MUST(Call(Step{Kernel::kMid, buffer, 3, i}).launch(stream));
  }
  SLUICE_MUST(cuStreamSynchronize(stream));
  sluice_job_end(job);
}

void run_jobs(const std::filesystem::path& while_there) {
  enter_device();
  load_kernels();
  CUdeviceptr buffer = 0;
  SLUICE_MUST(cuMemAlloc(&buffer, kWords * sizeof(std::uint32_t)));
  const Stream stream = new_stream();
  run_job(stream, buffer, 0);
  std::printf("ready, %s\n", sluice_attached() != 0 ? "attached" : "not attached");
  std::fflush(stdout);
  while (!std::filesystem::exists(while_there)) std::this_thread::sleep_for(milliseconds(5));
  std::mt19937 random(1);  // random, so that jobs do not keep step with the cases
  std::uniform_int_distribution<int> pause_us(1200, 2800);
  unsigned jobs = 0;
  while (std::filesystem::exists(while_there)) {
    // steady_clock is CLOCK_MONOTONIC, the clock of announcements.
    const auto due = steady_clock::now() + microseconds(pause_us(random));
    std::uint64_t announced = 0;
    if (jobs % 2 == 1) {
      std::this_thread::sleep_until(due - milliseconds(1));
      announced = sluice_job_announce(static_cast<std::uint64_t>(due.time_since_epoch().count()));
    }
    std::this_thread::sleep_until(due);
    run_job(stream, buffer, announced);
    ++jobs;
  }
  std::printf("%u jobs\n", jobs);
}

}  // namespace
}  // namespace sluice::graphs

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: graph_rival FILE\n");
    return 2;
  }
  try {
    sluice::graphs::run_jobs(argv[1]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "graph_rival: %s\n", error.what());
    return 1;
  }
  return 0;
}
