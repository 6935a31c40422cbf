// How long a job waits for the GPU, whatever its threads do at once.
#include "intercept/jobs/waits.hpp"

#include <gtest/gtest.h>

namespace sluice::intercept::test {
namespace {

constexpr std::uint64_t kBegan = 1000;

class WaitsOfAJob : public testing::Test {
 protected:
  WaitsOfAJob() { waits_.job_begins(); }
  [[nodiscard]] Waits::Wait begins(std::uint64_t at) const { return waits_.begins(at, 0); }
  void returned(const Waits::Wait& wait, std::uint64_t at) { waits_.returned(wait, at, kBegan); }
  std::uint64_t of_job() { return waits_.job_ended(1'000'000); }
  Waits waits_;
};

TEST_F(WaitsOfAJob, WaitsAddUp) {
  returned(begins(2000), 2500);
  returned(begins(3000), 3300);
  EXPECT_EQ(of_job(), 800U);
}

// Prevents: a job of two threads that wait for the same work has waited for twice its time.
TEST_F(WaitsOfAJob, OfTwoThreadsAtOnceTheUnionCounts) {
  const auto first = begins(2000);
  const auto second = begins(2100);
  returned(first, 2500);
  returned(second, 2600);
  EXPECT_EQ(of_job(), 600U);
  waits_.job_begins();
  const auto outer = begins(2000);
  returned(begins(2100), 2200);
  returned(begins(2300), 2400);
  returned(outer, 2500);
  EXPECT_EQ(of_job(), 500U) << "one within the other";
  waits_.job_begins();
  returned(begins(2000), 2100);
  const auto left = begins(2200);
  const auto right = begins(2200);
  returned(right, 2400);
  returned(left, 2400);
  EXPECT_EQ(of_job(), 300U) << "both return at once";
}

TEST_F(WaitsOfAJob, AWaitThatBeganBeforeCountsFromTheBeginOfTheJob) {
  returned(begins(500), 1200);
  EXPECT_EQ(of_job(), 200U);
}

// A thread that is cancelled in its wait never returns, and takes nothing from the others.
TEST_F(WaitsOfAJob, AThreadThatIsCancelledCountsNothing) {
  (void)begins(2000);
  returned(begins(2500), 2700);
  EXPECT_EQ(of_job(), 200U);
}

TEST_F(WaitsOfAJob, NoMoreThanTheJobTookCounts) {
  returned(begins(2000), 9'000'000);
  EXPECT_EQ(waits_.job_ended(5000), 5000U);
  EXPECT_EQ(waits_.sums(0).waited_ns, 5000U);
  waits_.job_begins();
  returned(begins(9'100'000), 9'100'400);
  EXPECT_EQ(waits_.job_ended(1000), 400U);
  EXPECT_EQ(waits_.sums(0).waited_ns, 5400U);
  EXPECT_EQ(waits_.sums(0).host_ns, 600U);
}

// Prevents: nothing is known of a program whose job never ends; sums that fall.
TEST_F(WaitsOfAJob, OfTheOpenJobTheTimeUntilTheLastWaitCounts) {
  EXPECT_EQ(waits_.sums(kBegan).host_ns, 0U);
  returned(begins(2000), 2500);
  EXPECT_EQ(waits_.sums(kBegan).waited_ns, 500U);
  EXPECT_EQ(waits_.sums(kBegan).host_ns, 1000U);
  returned(begins(2600), 2800);
  EXPECT_EQ(waits_.sums(kBegan).waited_ns, 700U);
  EXPECT_EQ(waits_.sums(kBegan).host_ns, 1100U);
  EXPECT_EQ(waits_.job_ended(2000), 700U);
  EXPECT_EQ(waits_.sums(0).waited_ns, 700U);
  EXPECT_EQ(waits_.sums(0).host_ns, 1300U);
  waits_.job_begins();
  EXPECT_EQ(waits_.sums(4000).host_ns, 1300U) << "no wait has returned in the next job";
}

TEST_F(WaitsOfAJob, AClockThatGoesBackCountsNothing) {
  returned(begins(5000), 4000);
  returned(begins(6000), 100);
  EXPECT_EQ(of_job(), 0U);
}

}  // namespace
}  // namespace sluice::intercept::test
