// sluice_simulation --seed S --seeds N --steps N [--trace]: runs N seeds from S on. Prints the
// first seed that breaks an invariant, and ends with 1.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "spdlog/spdlog.h"
#include "tests/simulation/world.hpp"

namespace {

double seconds_of(clockid_t clock) {
  timespec now{};
  syscall(SYS_clock_gettime, clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t seed = 1;
  std::uint64_t seeds = 1;
  double seconds = 0;
  sluice::simulation::Options options;
  CLI::App app{"The session with real code in virtual time"};
  app.add_option("--seed", seed, "The first seed");
  app.add_option("--seeds", seeds, "How many");
  app.add_option("--seconds", seconds, "Begin no seed after so long");
  app.add_option("--steps", options.steps, "Turns of a seed");
  app.add_flag("--steady", options.steady, "Each seed has a steady time");
  app.add_flag("--trace", options.trace, "Print what happens");
  CLI11_PARSE(app, argc, argv);
  spdlog::set_level(spdlog::level::off);
  sluice::simulation::fresh_globals();
  sluice::simulation::Fibers::prepare();
  const double begin = seconds_of(CLOCK_MONOTONIC);
  std::uint64_t done = 0;
  for (; done < seeds && (seconds == 0 || seconds_of(CLOCK_MONOTONIC) - begin < seconds); ++done) {
    const sluice::simulation::SeedMemory memory;
    const std::string broken = sluice::simulation::World(seed + done, options).run();
    if (broken.empty()) continue;
    std::printf("seed %lu: %s\n", static_cast<unsigned long>(seed + done), broken.c_str());
    std::printf("again: --seed %lu --steps %lu --trace\n", static_cast<unsigned long>(seed + done),
                static_cast<unsigned long>(options.steps));
    return 1;
  }
  std::printf("%lu seeds, %.0f a minute of one processor\n", static_cast<unsigned long>(done),
              static_cast<double>(done) / seconds_of(CLOCK_PROCESS_CPUTIME_ID) * 60);
  return 0;
}
