// sluice-example-spin: a small GPU program for trying `sluice exec` and `sluice compare`.
// It uses the CUDA driver API, so it runs on a real GPU and under `sluice exec --gpu sim`.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <random>
#include <thread>
#include <vector>

#include "base/clock.hpp"
#include "base/command_line.hpp"
#include "base/statistics.hpp"
#include "sluice/sluice.h"
#include "tools/examples/gpu.hpp"

namespace {

using sluice::base::monotonic_ns;
using sluice::tools::Gpu;

struct Options {
  std::uint64_t kernels = 100;
  double kernel_us = 50;
  double host_us = 0;
  double period_ms = 0;
  bool poisson = false;
  bool mark = false;
  double announce_ms = 0;
  double seconds = 0;
  std::uint64_t jobs = 0;
  std::size_t in_flight = 1;
  bool each = false;
};

std::sig_atomic_t volatile g_stop = 0;

std::uint64_t to_real_ns(const Gpu& gpu, double ms) {
  return static_cast<std::uint64_t>(ms * 1e6 * gpu.time_scale());
}

void sleep_until(std::uint64_t ns) {
  const std::uint64_t now = monotonic_ns();
  if (ns > now) std::this_thread::sleep_for(std::chrono::nanoseconds(ns - now));
}

void launch_all(const Gpu& gpu, const Options& options) {
  for (std::uint64_t i = 0; i < options.kernels; ++i) {
    // Not asleep: a host that is slow works.
    const std::uint64_t due = monotonic_ns() + to_real_ns(gpu, options.host_us / 1e3);
    while (options.host_us > 0 && monotonic_ns() < due) {
    }
    gpu.launch(static_cast<std::uint64_t>(options.kernel_us * 1e3));
  }
}

/// Runs one job. Returns its duration in ms of GPU time.
double run_job(const Gpu& gpu, const Options& options) {
  std::uint64_t announced = 0;
  if (options.announce_ms > 0) {
    const std::uint64_t start = monotonic_ns() + to_real_ns(gpu, options.announce_ms);
    announced = sluice_job_announce(start);
    sleep_until(start);
  }
  const std::uint64_t begin = monotonic_ns();
  const std::uint64_t job = options.mark ? sluice_job_begin(announced) : 0;
  launch_all(gpu, options);
  gpu.wait();
  if (options.mark) sluice_job_end(job);
  return static_cast<double>(monotonic_ns() - begin) / 1e6 / gpu.time_scale();
}

void report(const Gpu& gpu, const char* what, std::uint64_t start_ns,
            const std::vector<double>& took_ms) {
  const double seconds = static_cast<double>(monotonic_ns() - start_ns) / 1e9 / gpu.time_scale();
  std::printf("%zu %s in %.2f s: %.2f %s/s, p50 %.3f ms, p99 %.3f ms, on %s\n", took_ms.size(),
              what, seconds, static_cast<double>(took_ms.size()) / seconds, what,
              sluice::base::percentile(took_ms, 0.5), sluice::base::percentile(took_ms, 0.99),
              gpu.name());
}

/// `ms`: what a job or a step took that has just ended.
void add(std::vector<double>& took_ms, double ms, const Options& options) {
  took_ms.push_back(ms);
  if (options.each) std::printf("%.6f %.4f\n", static_cast<double>(monotonic_ns()) / 1e9, ms);
}

/// A server that is never idle: it gives the GPU the next step before it waits for one. What a step
/// takes is the time between two returns of a wait.
int run_steps(const Options& options) {
  const Gpu gpu;
  std::vector<CUevent> events(options.in_flight);
  for (CUevent& event : events) event = Gpu::make_event();
  std::vector<double> took_ms;
  const std::uint64_t start = monotonic_ns();
  const std::uint64_t end =
      options.seconds > 0 ? start + to_real_ns(gpu, options.seconds * 1e3) : ~std::uint64_t{0};
  std::uint64_t last = start;
  for (std::size_t step = 0; g_stop == 0 && last < end; ++step) {
    launch_all(gpu, options);
    gpu.record(events[step % events.size()]);
    if (step + 1 < events.size()) continue;
    Gpu::wait(events[(step + 1) % events.size()]);
    const std::uint64_t now = monotonic_ns();
    add(took_ms, static_cast<double>(now - last) / 1e6 / gpu.time_scale(), options);
    last = now;
    if (took_ms.size() == options.jobs) break;
  }
  gpu.wait();
  report(gpu, "steps", start, took_ms);
  return sluice::base::kExitFine;
}

int run(const Options& options) {
  const Gpu gpu;
  std::mt19937_64 random(1);
  std::exponential_distribution<double> gap;
  std::vector<double> took_ms;
  const std::uint64_t start = monotonic_ns();
  const std::uint64_t end =
      options.seconds > 0 ? start + to_real_ns(gpu, options.seconds * 1e3) : ~std::uint64_t{0};
  for (std::uint64_t due = start; g_stop == 0 && due < end;) {
    sleep_until(due);
    if (g_stop != 0 || monotonic_ns() >= end) break;
    add(took_ms, run_job(gpu, options), options);
    if (took_ms.size() == options.jobs) break;
    const double factor = options.poisson ? gap(random) : 1;
    due =
        options.period_ms > 0 ? due + to_real_ns(gpu, options.period_ms * factor) : monotonic_ns();
  }
  report(gpu, "jobs", start, took_ms);
  return sluice::base::kExitFine;
}

void add_options(CLI::App& app, Options& options) {
  app.add_option("--kernels", options.kernels, "Number of kernels of a job")->capture_default_str();
  app.add_option("--kernel-us", options.kernel_us, "Duration of a kernel in microseconds")
      ->capture_default_str();
  app.add_option("--host-us", options.host_us,
                 "Time that the host needs in front of each kernel, in microseconds");
  app.add_option("--period-ms", options.period_ms, "Time between two jobs; 0: one after the other");
  app.add_flag("--poisson", options.poisson, "Jobs at random times, --period-ms apart on average");
  app.add_flag("--mark", options.mark, "Call sluice_job_begin() and sluice_job_end()");
  app.add_option("--announce-ms", options.announce_ms,
                 "Announce each job this long before it begins");
  app.add_option("--seconds", options.seconds, "End after this time; 0: on Ctrl-C or SIGTERM");
  app.add_option("--jobs", options.jobs, "End after this number of jobs; 0: no limit");
  app.add_option(
         "--in-flight", options.in_flight,
         "Steps that the GPU has been given at once; from 2 on it is never idle, and --jobs "
         "counts steps")
      ->check(CLI::Range(1, 64))
      ->excludes("--period-ms", "--mark", "--announce-ms");
  app.add_flag("--each", options.each,
               "Print a line for each job or step: its end in seconds of CLOCK_MONOTONIC, and what "
               "it took in milliseconds");
  app.footer(
      "All times are GPU time. On the simulated GPU they pass more slowly than real time.\n\n"
      "Examples:\n"
      "  sluice exec --gpu sim --priority 0 -- sluice-example-spin --kernels 400\n"
      "  sluice exec --gpu sim --priority 1 -- sluice-example-spin --kernels 20 --period-ms 6\n"
      "  sluice exec --gpu sim --priority 1 -- sluice-example-spin --kernels 200 --in-flight 2");
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("A small GPU program: its jobs are kernels that only take time.",
               "sluice-example-spin");
  Options options;
  add_options(app, options);
  if (const auto exit_code = sluice::base::parse(app, argc, argv)) return *exit_code;
  options.mark = options.mark || options.announce_ms > 0;
  if (options.each) std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::signal(SIGINT, [](int) { g_stop = 1; });
  std::signal(SIGTERM, [](int) { g_stop = 1; });
  return sluice::base::run_program("sluice-example-spin", [&] {
    return options.in_flight > 1 ? run_steps(options) : run(options);
  });
}
