// Begin and end of a critical job with 1, 8 and 62 lower-priority clients: the board alone, without
// other processes.
#include <benchmark/benchmark.h>

#include <memory>

#include "shm/view.hpp"

namespace {

using namespace sluice;

void begin_and_end(benchmark::State& state) {
  const auto board = std::make_unique<shm::Board>();
  shm::BoardView view(*board);
  const int lower = static_cast<int>(state.range(0));
  for (int slot = 0; slot <= lower; ++slot) {
    shm::reserve(view, slot, slot == 0 ? 5 : 0, 0);
    shm::go_live(view, slot);
  }
  for (auto _ : state) {
    shm::begin_job(view, 0);
    shm::end_job(view, 0);
  }
}
BENCHMARK(begin_and_end)->Name("critical begin + end, lower clients")->Arg(1)->Arg(8)->Arg(62);

}  // namespace

BENCHMARK_MAIN();
