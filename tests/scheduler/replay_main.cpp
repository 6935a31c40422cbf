#include <cstdio>

#include "tests/scheduler/replay.hpp"

/// Prints the table of docs/reference/scheduler.md: means over ten seeds.
int main() {
  using namespace sluice::scheduler;
  constexpr unsigned kSeeds = 10;
  for (const unsigned lambda : {250U, 200U, 165U, 150U, 135U, 120U, 105U, 100U, 95U, 90U, 80U}) {
    std::printf("lambda %u ms\n", lambda);
    for (const Policy policy : kPolicies) {
      Outcome sum;
      std::size_t late2 = 0;
      for (unsigned seed = 0; seed < kSeeds; ++seed) {
        const Outcome four = replay(policy, lambda, Slo::kFourTimes, seed);
        late2 += replay(policy, lambda, Slo::kTwice, seed).late;
        sum.mean += four.mean / kSeeds;
        sum.max += four.max / kSeeds;
        sum.deviation += four.deviation / kSeeds;
        sum.late += four.late;
      }
      std::printf("  %-8s %6.2f %6.1f %6.2f  %5.1f%% %5.1f%%\n", to_string(policy).data(), sum.mean,
                  sum.max, sum.deviation, static_cast<double>(late2) / kSeeds / 10,
                  static_cast<double>(sum.late) / kSeeds / 10);
    }
  }
}
