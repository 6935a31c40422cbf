// Prints the tables of docs/reference/scheduler.md.
#include <cstdio>

#include "tests/scheduler/replay.hpp"

using sluice::scheduler::kPolicies;
using sluice::scheduler::Outcome;
using sluice::scheduler::Policy;
using sluice::scheduler::Slo;

namespace {

void print_ratios(unsigned lambda_ms) {
  std::printf("| %u ms |", lambda_ms);
  for (const Policy policy : kPolicies) {
    const Outcome outcome = mean_of_replays(policy, lambda_ms, Slo::kFourTimes);
    std::printf(" %.2f / %.1f / %.2f |", outcome.mean, outcome.max, outcome.deviation);
  }
  std::printf("\n");
}

void print_late(unsigned lambda_ms) {
  std::printf("| %u ms |", lambda_ms);
  for (const Policy policy : kPolicies) {
    std::printf(" %.1f / %.1f |", mean_of_replays(policy, lambda_ms, Slo::kTwice).late / 10,
                mean_of_replays(policy, lambda_ms, Slo::kFourTimes).late / 10);
  }
  std::printf("\n");
}

}  // namespace

int main() {
  std::printf("Response ratio, mean / maximum / deviation\n| lambda |");
  for (const Policy policy : kPolicies) std::printf(" %s |", to_string(policy).data());
  std::printf("\n");
  for (const unsigned lambda_ms : {150, 105}) print_ratios(lambda_ms);
  std::printf("\nLate requests in %%, deadline 2x / 4x\n");
  for (const unsigned lambda_ms : {250, 200, 165, 150, 135, 120, 105, 100, 95, 90, 80}) {
    print_late(lambda_ms);
  }
}
