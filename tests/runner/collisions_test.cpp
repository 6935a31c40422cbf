#include "runner/run/collisions.hpp"

#include <gtest/gtest.h>

namespace sluice::runner {
namespace {

TEST(Collisions, AreOverlapsOfAnyLength) {
  const std::vector<JobSpan> jobs{{0, 10}, {20, 30}, {40, 50}, {60, 70}};
  // One spans several jobs, one is inside a job, and they are not in order.
  EXPECT_EQ(collisions(jobs, {{62, 63}, {5, 45}}), (std::vector<bool>{true, true, true, true}));
  EXPECT_EQ(collisions(jobs, {{31, 39}}), (std::vector<bool>{false, false, false, false}));
}

TEST(Collisions, TouchingJobsDoNotCollide) {
  // Back-to-back jobs share a time stamp, but nothing ran at the same time.
  EXPECT_EQ(collisions({{10, 20}}, {{0, 10}, {20, 30}}), std::vector<bool>{false});
}

TEST(Collisions, ALongJobBeforeAShortOneIsFound) {
  // The ends are not in order, so a search by end alone would miss the long job.
  EXPECT_EQ(collisions({{90, 95}}, {{0, 100}, {10, 20}}), std::vector<bool>{true});
}

TEST(Collisions, NoOtherJobsNoCollisions) {
  EXPECT_EQ(collisions({{10, 20}}, {}), std::vector<bool>{false});
  EXPECT_TRUE(collisions({}, {{10, 20}}).empty());
}

}  // namespace
}  // namespace sluice::runner
