// The time of a network is what users see: a call that is left out or counted twice is not visible.
#include "predictor/replay.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "synthetic.hpp"

namespace sluice::predictor {
namespace {

/// 0 -> 1, 0 -> 2, then 3 reads both.
Network diamond() {
  return {.name = "diamond", .batch = 1, .calls = {{0, {}}, {1, {0}}, {1, {0}}, {2, {1, 2}}}};
}

const std::vector<double> kSeconds{1, 4, 2, 1};

TEST(Replay, OneStreamIsTheSum) {
  const Replay r = replay(diamond(), kSeconds, 1);
  EXPECT_DOUBLE_EQ(r.sum, 8);
  EXPECT_DOUBLE_EQ(r.schedule, 8);
}

TEST(Replay, TwoStreamsAreTheCriticalPath) {
  const Replay r = replay(diamond(), kSeconds, 2);
  EXPECT_DOUBLE_EQ(r.sum, 8);
  EXPECT_DOUBLE_EQ(r.schedule, 6);
}

TEST(Replay, ACallThatReadsALaterOneIsRefused) {
  Network broken = diamond();
  broken.calls[1].after = {2};
  EXPECT_THROW((void)replay(broken, kSeconds, 1), base::UsageError);
}

TEST(Fastest, IsOfThisDevice) {
  const auto made = test::synthetic(3, 5, 2);
  const auto best = fastest(made.data, 1);
  for (const auto& label : best) {
    ASSERT_TRUE(label);
    EXPECT_EQ(label->query.device, 1U);
    for (const Label& other : made.on(1)) {
      if (made.data.programs[other.query.program].task ==
          made.data.programs[label->query.program].task) {
        EXPECT_LE(label->seconds, other.seconds);
      }
    }
  }
  predictor::Dataset without = made.data;
  without.labels.clear();
  EXPECT_FALSE(fastest(without, 0)[0]);
}

}  // namespace
}  // namespace sluice::predictor
