// Whether a client counts as using the GPU, in virtual time: what it has used, not that it is
// there.
#include "intercept/slot/own_use.hpp"

#include <gtest/gtest.h>

#include <random>

namespace sluice::intercept::test {
namespace {

constexpr std::uint64_t kMs = 1'000'000;
constexpr std::uint64_t kSecond = 1000 * kMs;
constexpr std::uint64_t kTickNs = 20 * kMs;

class Use : public testing::Test {
 protected:
  Use() { tick(); }
  /// A launch whose kernel has a known duration.
  void launch(std::uint64_t gpu_ns) {
    ++seen_.launches;
    seen_.gpu_ns += gpu_ns;
  }
  bool tick() {
    now_ += kTickNs;
    uses_ = use_.tick(seen_, now_);
    used_ticks_ += uses_ ? 1 : 0;
    return uses_;
  }
  /// How many ticks pass until the use is as given, at most so many seconds.
  int ticks_until(bool uses, int seconds, std::uint64_t gpu_ns_each = 0) {
    int ticks = 0;
    while (ticks < seconds * 50 && uses_ != uses) {
      if (gpu_ns_each != 0) launch(gpu_ns_each);
      tick();
      ++ticks;
    }
    return ticks;
  }

  OwnUse use_;
  OwnUse::Seen seen_;
  std::uint64_t now_ = 1000 * kSecond;
  bool uses_ = false;
  int used_ticks_ = 0;
};

// Prevents: an empty kernel each 0.5 s, or 5 ms each second, changes the slices of all others.
TEST_F(Use, BelowOnePercentIsNone) {
  for (std::uint32_t seed = 0; seed < 50; ++seed) {
    std::mt19937 random(seed);
    use_ = {};
    tick();
    // Of kernels of one length, at random times that are one hundred times as far apart, or more.
    const std::uint64_t kernel_ns = (1 + random() % 100'000) * 1000;
    std::uint64_t next_ns = now_;
    for (int i = 0; i < 20'000; ++i) {
      while (next_ns <= now_) {
        launch(kernel_ns);
        next_ns += kernel_ns * (100 + random() % 100);
      }
      seen_.has_job = random() % 4 != 0;  // without a wait, the end of a job is not seen
      ASSERT_FALSE(tick()) << "seed " << seed << ", kernels of " << kernel_ns << " ns";
    }
  }
}

// Prevents: the estimate is too long, because other programs run at the same time.
TEST_F(Use, EvenIfTheEstimateIsTwiceTooLong) {
  for (int i = 0; i < 50'000; ++i) {
    if (i % 50 == 0) launch(10 * kMs);  // 5 ms each second
    ASSERT_FALSE(tick());
  }
}

TEST_F(Use, OfAProgramThatKeepsTheGpuBusyIsKnownSoon) {
  EXPECT_LE(ticks_until(true, 10, kTickNs), 14);
  EXPECT_EQ(ticks_until(false, 10, kTickNs), 500) << "it goes on";
}

TEST_F(Use, OfATenthIsKnownInSeconds) {
  EXPECT_LE(ticks_until(true, 60, kTickNs / 10), 250);
  EXPECT_EQ(ticks_until(false, 60, kTickNs / 10), 3000);
}

// Prevents: the slices of all change with each kernel of a client that uses just enough.
TEST_F(Use, DoesNotComeAndGoWithEachKernel) {
  ticks_until(true, 10, kTickNs);
  int changes = 0;
  for (int i = 0; i < 50 * 60; ++i) {
    const bool before = uses_;
    if (i % 30 == 0) launch(17 * kMs);  // nearly 3 % of 600 ms
    changes += tick() != before ? 1 : 0;
  }
  EXPECT_EQ(changes, 1);
}

TEST_F(Use, EndsSoonAfterTheWork) {
  ticks_until(true, 10, kTickNs);
  for (int i = 0; i < 500; ++i) {
    launch(kTickNs);
    tick();
  }
  EXPECT_LE(ticks_until(false, 60), 150);
}

// Prevents: nobody counts while a kernel of several seconds runs.
TEST_F(Use, LastsAsLongAsALongKernel) {
  seen_.has_job = true;
  launch(5 * kSecond);
  for (int i = 0; i < 5 * 50; ++i) ASSERT_TRUE(tick()) << i;
  seen_.has_job = false;
  EXPECT_LE(ticks_until(false, 60), 150);
}

// Prevents: a program whose first kernel takes seconds counts as one that does nothing.
TEST_F(Use, IsAlsoThatOfWorkOfUnknownDuration) {
  ++seen_.launches;
  seen_.has_job = true;
  EXPECT_LE(ticks_until(true, 10), 14);
  EXPECT_EQ(ticks_until(false, 5), 250);
  // A stream may wait for the program, and would count indefinitely.
  EXPECT_LE(ticks_until(false, 60), 50 * 10);
}

TEST_F(Use, OfUnknownDurationEndsWithTheJob) {
  ++seen_.launches;
  EXPECT_EQ(ticks_until(true, 8), 400);
}

TEST_F(Use, IsUnknownForATickOnly) {
  for (int i = 0; i < 50'000; ++i) {
    seen_.has_job = true;
    if (i % 50 == 0) ++seen_.launches;  // seen a tick before its GPU time
    if (i % 50 == 1) seen_.gpu_ns += 1000;
    ASSERT_FALSE(tick());
  }
}

// Prevents: a client that is held for a while counts as idle when its gate opens.
TEST_F(Use, StaysWhileOthersHoldTheClient) {
  seen_.has_job = true;
  ticks_until(true, 10, kTickNs);
  seen_.held = true;
  EXPECT_EQ(ticks_until(false, 30), 1500);
  seen_.held = false;
  EXPECT_LE(ticks_until(false, 60), 150);
}

TEST_F(Use, OfWorkThatWasHeldIsNone) {
  ++seen_.launches;
  seen_.has_job = true;
  seen_.held = true;
  EXPECT_EQ(ticks_until(true, 30), 1500);
}

// Prevents: the estimate of the next client of a slot, or of a fork, makes it busy.
TEST_F(Use, AnEstimateThatBeginsAnewIsNoUse) {
  use_ = {};
  seen_.gpu_ns = 100 * kSecond;
  tick();
  EXPECT_FALSE(uses_) << "what was used before this client looked";
  seen_.gpu_ns = 0;
  tick();
  EXPECT_FALSE(uses_);
}

}  // namespace
}  // namespace sluice::intercept::test
