// When time slices are tried: never while somebody uses the GPU, not again and again, and always to
// an end.
#include "controller/trial_rule.hpp"

#include <gtest/gtest.h>

namespace sluice::controller::test {
namespace {

using Do = TrialRule::Do;
constexpr std::uint64_t kSecond = 1'000'000'000;

class Trials : public testing::Test {
 protected:
  /// Ticks once a second for as long, in virtual time. What was said first that is not kNothing.
  Do pass(std::uint64_t seconds) {
    for (std::uint64_t i = 0; i < seconds; ++i) {
      now_ns_ += kSecond;
      const Do said = rule_.tick(now_ns_, seen_, [this] {
        ++looks_;
        return foreign_;
      });
      if (said == Do::kNothing) continue;
      seen_.running = said == Do::kBegin;
      return said;
    }
    return Do::kNothing;
  }

  TrialRule rule_;
  TrialRule::Seen seen_{.quiet = true, .wanted = true, .running = false};
  bool foreign_ = false;
  int looks_ = 0;
  std::uint64_t now_ns_ = 1000 * kSecond;
};

TEST_F(Trials, BeginAfterTenQuietSeconds) {
  EXPECT_EQ(pass(10), Do::kNothing);
  EXPECT_EQ(looks_, 0) << "NVML is asked when it matters only";
  EXPECT_EQ(pass(1), Do::kBegin);
}

TEST_F(Trials, WaitForTenSecondsWithoutAPause) {
  for (int i = 0; i < 5; ++i) {
    seen_.quiet = true;
    EXPECT_EQ(pass(9), Do::kNothing);
    seen_.quiet = false;
    EXPECT_EQ(pass(1), Do::kNothing);
  }
}

TEST_F(Trials, DoNotBeginUnasked) {
  seen_.wanted = false;
  EXPECT_EQ(pass(3600), Do::kNothing);
  EXPECT_EQ(looks_, 0);
}

TEST_F(Trials, BeginTenSecondsAfterProgramsOutsideHaveGone) {
  foreign_ = true;
  EXPECT_EQ(pass(3600), Do::kNothing);
  EXPECT_LE(looks_, 361) << "every ten seconds";
  foreign_ = false;
  EXPECT_EQ(pass(11), Do::kBegin) << "that was no trial, so there is no long pause";
}

TEST_F(Trials, EndAtOnceWhenTheGpuIsUsed) {
  ASSERT_EQ(pass(11), Do::kBegin);
  EXPECT_EQ(pass(5), Do::kNothing);
  seen_.quiet = false;
  EXPECT_EQ(pass(1), Do::kEnd);
}

TEST_F(Trials, EndWhenAProgramOutsideComes) {
  ASSERT_EQ(pass(11), Do::kBegin);
  foreign_ = true;
  EXPECT_EQ(pass(1), Do::kEnd);
}

TEST_F(Trials, EndWhenTheyHang) {
  ASSERT_EQ(pass(11), Do::kBegin);
  EXPECT_EQ(pass(89), Do::kNothing);
  EXPECT_EQ(pass(1), Do::kEnd);
}

// Prevents: a machine on which no trial succeeds is disturbed every few seconds.
TEST_F(Trials, ComeTwiceAsLateEachTime) {
  ASSERT_EQ(pass(11), Do::kBegin);
  std::uint64_t pause = 600;
  for (int i = 0; i < 12; ++i) {
    seen_.running = false;  // ended without an answer
    EXPECT_EQ(pass(pause - 1), Do::kNothing);
    ASSERT_EQ(pass(1), Do::kBegin);
    pause = std::min<std::uint64_t>(2 * pause, 86'400);
  }
}

}  // namespace
}  // namespace sluice::controller::test
