// The time from start to end of a program without CUDA, with and without the preload, and its
// number of threads.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>

#include "base/child.hpp"

namespace {

using namespace sluice;

void start_program(benchmark::State& state, std::vector<std::string> variables) {
  std::vector<double> times;
  int threads = 0;
  for (auto _ : state) {
    const auto begin = std::chrono::steady_clock::now();
    threads = base::run_to_end({SLUICE_EMPTY_PROGRAM}, variables);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    times.push_back(took.count());
    state.SetIterationTime(times.back());
  }
  std::sort(times.begin(), times.end());
  state.counters["median_us"] = times[times.size() / 2] * 1e6;
  state.counters["threads"] = threads;
}
BENCHMARK_CAPTURE(start_program, without preload, {})
    ->UseManualTime()
    ->Iterations(1000)
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(start_program, with preload, {"LD_PRELOAD=" SLUICE_INTERCEPT_LIBRARY})
    ->UseManualTime()
    ->Iterations(1000)
    ->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
