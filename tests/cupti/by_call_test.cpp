#include "intercept/trace/cupti/by_call.hpp"

#include <gtest/gtest.h>

#include <memory>

namespace sluice::collector {
namespace {

class ByCallTest : public testing::Test {
 protected:
  std::unique_ptr<ByCall> launches_ = std::make_unique<ByCall>();
};

TEST_F(ByCallTest, AGraphsKernelsAllFindItsLaunch) {
  launches_->set(10, 1);
  for (int node = 0; node < 700; ++node) EXPECT_EQ(launches_->of(10), 1U);
}

// A kernel of a call that no hook saw must not be taken for one of another.
TEST_F(ByCallTest, WhatIsNoLaunchOfOursIsNone) {
  EXPECT_EQ(launches_->of(0), 0U);
  EXPECT_EQ(launches_->of(7), 0U);
  launches_->set(7, 1);
  EXPECT_EQ(launches_->of(7 + ByCall::kCalls), 0U);
}

TEST_F(ByCallTest, AnOldCallGivesItsPlaceToANewOne) {
  launches_->set(7, 1);
  launches_->set(7 + ByCall::kCalls, 2);
  EXPECT_EQ(launches_->of(7), 0U);
  EXPECT_EQ(launches_->of(7 + ByCall::kCalls), 2U);
}

// Only the low half of a launch's number is kept; a service launches that many within a day.
TEST_F(ByCallTest, NumbersBeyond32BitsComeBackWhole) {
  constexpr std::uint64_t kEdge = std::uint64_t{3} << 32U;
  for (std::uint64_t launch = kEdge - 500; launch < kEdge + 500; ++launch) {
    launches_->set(static_cast<std::uint32_t>(launch % 1000 + 1), launch);
  }
  for (std::uint64_t launch = kEdge - 500; launch < kEdge + 500; ++launch) {
    EXPECT_EQ(launches_->of(static_cast<std::uint32_t>(launch % 1000 + 1)), launch);
  }
}

// Another thread's later launch is the newest, whichever is written last.
TEST_F(ByCallTest, NumbersMayComeInAnyOrder) {
  constexpr std::uint64_t kEdge = std::uint64_t{1} << 32U;
  launches_->set(2, kEdge + 1);
  launches_->set(1, kEdge - 1);
  EXPECT_EQ(launches_->of(1), kEdge - 1);
  EXPECT_EQ(launches_->of(2), kEdge + 1);
}

}  // namespace
}  // namespace sluice::collector
