// The shape of the published table, in virtual time. Means over ten runs of 1000 requests.
#include "tests/scheduler/replay.hpp"

#include <gtest/gtest.h>

namespace sluice::scheduler {
namespace {

constexpr unsigned kRuns = 10;

Outcome mean(Policy policy, unsigned lambda_ms, Slo slo) {
  Outcome sum;
  for (unsigned seed = 0; seed < kRuns; ++seed) {
    const Outcome each = replay(policy, lambda_ms, slo, seed);
    sum.mean += each.mean / kRuns;
    sum.max += each.max / kRuns;
    sum.deviation += each.deviation / kRuns;
    sum.late += each.late;
  }
  return sum;
}

TEST(Replay, DlirHasTheLeastMaximumAndDeviationAt150Ms) {
  const Outcome dlir = mean(Policy::kDlir, 150, Slo::kFourTimes);
  for (const Policy policy : {Policy::kFifo, Policy::kBnst, Policy::kParaller, Policy::kOyst}) {
    const Outcome other = mean(policy, 150, Slo::kFourTimes);
    EXPECT_LE(dlir.max, other.max) << to_string(policy);
    EXPECT_LE(dlir.deviation, other.deviation) << to_string(policy);
  }
  const Outcome fifo = mean(Policy::kFifo, 150, Slo::kFourTimes);
  EXPECT_LT(dlir.max, 0.7 * fifo.max);
  EXPECT_LT(dlir.deviation, 0.5 * fifo.deviation);
  EXPECT_LT(dlir.mean, fifo.mean);
}

TEST(Replay, OystCollapsesAt105MsAndDlirDoesNot) {
  const Outcome oyst = mean(Policy::kOyst, 105, Slo::kFourTimes);
  for (const Policy policy : {Policy::kFifo, Policy::kBnst, Policy::kParaller, Policy::kDlir}) {
    const Outcome other = mean(policy, 105, Slo::kFourTimes);
    EXPECT_GT(oyst.mean, 2 * other.mean) << to_string(policy);
    EXPECT_GT(oyst.max, 3 * other.max) << to_string(policy);
    EXPECT_GT(oyst.deviation, 3 * other.deviation) << to_string(policy);
  }
}

TEST(Replay, ParallerIsTheWorstAt150Ms) {
  const Outcome paraller = mean(Policy::kParaller, 150, Slo::kFourTimes);
  for (const Policy policy : {Policy::kFifo, Policy::kBnst, Policy::kOyst, Policy::kDlir}) {
    EXPECT_GT(paraller.mean, mean(policy, 150, Slo::kFourTimes).mean) << to_string(policy);
  }
}

class ReplayOfEdf : public testing::TestWithParam<unsigned> {};

TEST_P(ReplayOfEdf, HasTheFewestLateRequests) {
  for (const Slo slo : {Slo::kTwice, Slo::kFourTimes}) {
    const std::size_t edf = mean(Policy::kEdf, GetParam(), slo).late;
    for (const Policy policy : kPolicies) {
      EXPECT_LE(edf, mean(policy, GetParam(), slo).late)
          << to_string(policy) << " with deadlines of " << static_cast<int>(slo) << " times";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Lambda, ReplayOfEdf,
                         testing::Values(250, 200, 165, 150, 135, 120, 105, 100, 90, 80));

}  // namespace
}  // namespace sluice::scheduler
