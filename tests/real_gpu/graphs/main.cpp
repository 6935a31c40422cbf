// graph_cases [--rounds N] [--only TEXT] [--lose] [--warm FILE]: runs every case on the first GPU
// and prints a line for each: its name, a hash of the results of its kernels, and the driver's
// answers.
// --warm creates FILE when the durations of the kernels have been learned, and keeps the process
// alive at the end until FILE is removed. Exit codes: 0, 1 if a case failed, 2 for wrong usage.
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <thread>

#include "tests/real_gpu/graphs/bench.hpp"

namespace sluice::graphs {
namespace {

struct Options {
  unsigned rounds = 2;
  std::string only;
  std::string warm;
  bool lose = false;
};

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--lose") {
      options.lose = true;
    } else if (word == "--rounds" && has_value) {
      options.rounds = static_cast<unsigned>(std::strtoul(argv[++i], nullptr, 10));
    } else if (word == "--only" && has_value) {
      options.only = argv[++i];
    } else if (word == "--warm" && has_value) {
      options.warm = argv[++i];
    } else {
      return false;
    }
  }
  return options.rounds > 0;
}

/// Returns whether the case passed.
bool run(const Case& which, std::span<const CUdeviceptr, 3> buffers, const Options& options) {
  std::string line = which.name;
  bool good = true;
  try {
    for (unsigned round = 0; round < options.rounds; ++round) {
      Bench bench(buffers, round, options.lose);
      which.run(bench);
      line += " " + bench.result();
      if (!bench.changed()) line += " (nothing was computed)";
    }
  } catch (const Skip& skip) {
    line += std::string(" skipped: ") + skip.what();
  } catch (const Failure& failure) {
    line += std::string(" FAILED: ") + failure.what();
    good = false;
  }
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  return good;
}

int run_all(const Options& options) {
  enter_device();
  load_kernels();
  std::array<CUdeviceptr, 3> buffers{};
  for (CUdeviceptr& buffer : buffers) {
    SLUICE_MUST(cuMemAlloc(&buffer, kWords * sizeof(std::uint32_t)));
  }
  warm_up(buffers[0]);
  if (!options.warm.empty()) std::ofstream(options.warm) << getpid() << '\n';
  const auto started = std::chrono::steady_clock::now();
  bool good = true;
  for (const std::span<const Case> cases :
       {capture_cases(), stream_cases(), update_cases(), node_cases(), memory_cases(),
        conditional_cases(), launch_cases()}) {
    for (const Case& which : cases) {
      if (std::string_view(which.name).find(options.only) == std::string_view::npos) continue;
      good = run(which, buffers, options) && good;
    }
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - started;
  std::fprintf(stderr, "graph_cases: %.1f s\n", took.count());
  std::printf("end\n");
  std::fflush(stdout);
  while (!options.warm.empty() && std::filesystem::exists(options.warm)) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return good ? 0 : 1;
}

}  // namespace
}  // namespace sluice::graphs

int main(int argc, char** argv) {
  sluice::graphs::Options options;
  if (!sluice::graphs::parse(argc, argv, options)) {
    std::fprintf(stderr, "usage: graph_cases [--rounds N] [--only TEXT] [--lose] [--warm FILE]\n");
    return 2;
  }
  try {
    return sluice::graphs::run_all(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "graph_cases: %s\n", error.what());
    return 1;
  }
}
