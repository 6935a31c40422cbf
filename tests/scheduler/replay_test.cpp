// The shape of the published table, in virtual time. Means over ten runs of 1000 requests.
#include "tests/scheduler/replay.hpp"

#include <gtest/gtest.h>

namespace sluice::scheduler {
namespace {

TEST(Replay, DlirHasTheLeastMaximumAndDeviationAt150Ms) {
  const Outcome dlir = mean_of_replays(Policy::kDlir, 150, Slo::kFourTimes);
  for (const Policy policy : {Policy::kFifo, Policy::kBnst, Policy::kParaller, Policy::kOyst}) {
    const Outcome other = mean_of_replays(policy, 150, Slo::kFourTimes);
    EXPECT_LE(dlir.max, other.max) << to_string(policy);
    EXPECT_LE(dlir.deviation, other.deviation) << to_string(policy);
  }
  const Outcome fifo = mean_of_replays(Policy::kFifo, 150, Slo::kFourTimes);
  EXPECT_LT(dlir.max, 0.7 * fifo.max);
  EXPECT_LT(dlir.deviation, 0.5 * fifo.deviation);
  EXPECT_LT(dlir.mean, fifo.mean);
}

TEST(Replay, OystCollapsesAt105MsAndDlirDoesNot) {
  const Outcome oyst = mean_of_replays(Policy::kOyst, 105, Slo::kFourTimes);
  for (const Policy policy : {Policy::kFifo, Policy::kBnst, Policy::kParaller, Policy::kDlir}) {
    const Outcome other = mean_of_replays(policy, 105, Slo::kFourTimes);
    EXPECT_GT(oyst.mean, 2 * other.mean) << to_string(policy);
    EXPECT_GT(oyst.max, 3 * other.max) << to_string(policy);
    EXPECT_GT(oyst.deviation, 3 * other.deviation) << to_string(policy);
  }
}

TEST(Replay, ParallerIsTheWorstAt150Ms) {
  const Outcome paraller = mean_of_replays(Policy::kParaller, 150, Slo::kFourTimes);
  for (const Policy policy : {Policy::kFifo, Policy::kBnst, Policy::kOyst, Policy::kDlir}) {
    EXPECT_GT(paraller.mean, mean_of_replays(policy, 150, Slo::kFourTimes).mean)
        << to_string(policy);
  }
}

class ReplayOfEdf : public testing::TestWithParam<unsigned> {};

TEST_P(ReplayOfEdf, HasTheFewestLateRequests) {
  for (const Slo slo : {Slo::kTwice, Slo::kFourTimes}) {
    const double edf = mean_of_replays(Policy::kEdf, GetParam(), slo).late;
    for (const Policy policy : kPolicies) {
      EXPECT_LE(edf, mean_of_replays(policy, GetParam(), slo).late)
          << to_string(policy) << " with deadlines of " << static_cast<int>(slo) << " times";
    }
  }
}

// At 95 ms the load without splitting is 1.0. EDF then still tries to meet the longest model, which
// OYST has given up.
TEST(Replay, EdfHasFewLateRequestsAtALoadOfOne) {
  for (const Policy policy : kPolicies) {
    EXPECT_LE(mean_of_replays(Policy::kEdf, 95, Slo::kTwice).late,
              mean_of_replays(policy, 95, Slo::kTwice).late);
    EXPECT_LE(mean_of_replays(Policy::kEdf, 95, Slo::kFourTimes).late,
              mean_of_replays(policy, 95, Slo::kFourTimes).late + 40);
  }
}

INSTANTIATE_TEST_SUITE_P(Lambda, ReplayOfEdf,
                         testing::Values(250, 200, 165, 150, 135, 120, 105, 100, 90, 80));

}  // namespace
}  // namespace sluice::scheduler
