// Whether gates may stay open in the steps of a program that is never idle, in virtual time.
#include <gtest/gtest.h>

#include "tests/intercept/step_programs.hpp"

namespace sluice::intercept::test {
namespace {

/// Two steps in flight, and a host that is slower than the GPU: open gates cost next to nothing,
/// and each short window costs two switches.
constexpr Program kHostBound{
    .step = 4, .noise = 0.1, .price = 0.3, .overrun = 0.5, .waits = 0.1, .stay = 0.01};

// Prevents: windows take from best effort what the steps would not miss.
TEST(StepLaw, GatesStayOpenWhereClosingBringsNothing) {
  for (const double noise : {0.02, 0.1, 0.2}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(testing::Message() << "noise " << noise << ", seed " << seed);
      Program program = kHostBound;
      program.noise = noise;
      Together run(seed);
      run.run(program, 2000);
      EXPECT_GE(run.run(program, 18'000).stayed, 0.7 * 18'000) << "before the answer is known";
      run.run(program, 20'000);
      EXPECT_EQ(run.law.staying(), StayOpen::State::kOpen);
      const Sum sum = run.run(program, 8000);
      EXPECT_GT(sum.stayed, 7000);
      EXPECT_LE(sum.longer(), 0.02);
      EXPECT_GT(sum.windows, sum.stayed - 1) << "all are counted";
    }
  }
}

// Prevents: a host that becomes slower while the gates are open is taken for harm: what a step
// takes with closed gates was last seen a second ago.
TEST(StepLaw, AHostThatJumpsClosesNoOpenGates) {
  for (const double jump : {1.6, 2.5, 4.0}) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
      SCOPED_TRACE(testing::Message() << jump << " times, seed " << seed);
      Program program = kHostBound;
      Together run(seed);
      run.run(program, 20'000);
      ASSERT_EQ(run.law.staying(), StayOpen::State::kOpen);
      program.jump = jump;
      EXPECT_GT(run.run(program, 20'000).stayed, 16'000);
      if (jump > 2) continue;
      program.stay = 1;
      EXPECT_LE(run.run(program, 40'000).longer(), 0.07) << "harm is noticed all the same";
    }
  }
}

// Prevents: steps that take twice as long with open gates pay for the question.
TEST(StepLaw, WhatHarmsIsSeldomTried) {
  for (const double waits : {0.1, 0.9}) {
    SCOPED_TRACE(waits);
    const Program program{.step = 20, .waits = waits, .stay = 1};
    Together run;
    const Sum first = run.run(program, 4000);
    EXPECT_LE(first.stayed, waits < 0.5 ? 60 : 0) << "in a minute and a half";
    const Sum sum = run.run(program, 100'000);
    EXPECT_LE(sum.stayed, 400);
    EXPECT_GE(sum.stayed, 30) << "it is asked again";
    EXPECT_LE(sum.longer(), 0.06);
    EXPECT_GE(sum.open, 0.6 * best_open(program, sum));
  }
}

// Prevents: the worst steps of open gates, which end after the gates have closed, are no evidence;
// or a few dear steps, which no median shows.
TEST(StepLaw, RareHarmIsHarm) {
  for (const double rare : {0.02, 0.1, 1.0}) {
    for (const double times : {1.0, 9.0}) {
      SCOPED_TRACE(testing::Message() << rare << " of the steps, " << times << " longer");
      Program program = kHostBound;
      program.rare = rare;
      program.rare_stay = times;
      for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        Together never(seed);
        EXPECT_LE(never.run(program, 40'000).longer(), 0.065);
        Together later(seed);
        later.run(kHostBound, 20'000);
        EXPECT_LE(later.run(program, 40'000).longer(), 0.07);
      }
    }
  }
}

// Prevents: with a prefill every few steps no block ends, and the gates stay as they are for
// minutes.
TEST(StepLaw, PrefillsDoNotStopTheTrial) {
  for (const int every : {3, 5, 9, 30}) {
    SCOPED_TRACE(every);
    Program program = kHostBound;
    program.prefill_every = every;
    program.prefill = 60;
    Together harmless;
    EXPECT_GE(harmless.run(program, 40'000).open, 1000);
    program.stay = 1;
    Together harmful;
    EXPECT_LE(harmful.run(program, 40'000).longer(), 0.065);
  }
}

// Prevents: a program with two waits a step, of which the first one is short, has windows only, or
// a trial that does not end.
TEST(StepLaw, EveryOtherStepMayBeShort) {
  for (const double other : {0.3, 4.0}) {
    for (const double noise : {0.1, 0.2}) {
      SCOPED_TRACE(testing::Message() << other << " ms, noise " << noise);
      Program program = kHostBound;
      program.step = 10;
      program.other = other;
      program.noise = noise;
      Together harmless;
      harmless.run(program, 20'000);
      EXPECT_GT(harmless.run(program, 8000).stayed, 7000);
      program.stay = program.price = 1;
      for (std::uint64_t seed = 1; seed <= 3; ++seed) {
        Together harmful(seed);
        EXPECT_LE(harmful.run(program, 4000).longer(), 0.06);
      }
    }
  }
}

// Prevents: what a trial has cost is paid back after the next one.
TEST(StepLaw, WhatATrialCostIsPaidBeforeTheNextOne) {
  Together run;
  Program harmful = kHostBound;
  harmful.kinds = 48;  // few of them end between two blocks
  run.run(harmful, 20'000);
  ASSERT_EQ(run.law.staying(), StayOpen::State::kOpen);
  harmful.stay = 5;
  while (run.law.staying() == StayOpen::State::kOpen) run.run(harmful, 1);
  int steps = 0;
  for (; run.law.staying() == StayOpen::State::kResting && steps < 10'000; ++steps) {
    run.run(harmful, 1);
  }
  EXPECT_NEAR(steps, 128 / (StepLaw::kAllowed / 2), 512) << "128 steps, by half of what they pay";
}

// Prevents: another neighbour has its trial at once, and the steps pay for both.
TEST(StepLaw, ATrialWaitsForWhatOtherNeighboursCost) {
  Together run;
  Program harmful = kHostBound;
  harmful.kinds = 48;
  run.run(harmful, 20'000);
  ASSERT_EQ(run.law.staying(), StayOpen::State::kOpen);
  harmful.stay = 5;
  for (Together next = run; next.law.staying() == StayOpen::State::kOpen; next.run(harmful, 1)) {
    run = next;
  }
  run.law.neighbours(8);
  EXPECT_EQ(run.run(harmful, 1000).stayed, 0);
}

// Prevents: what trials cost is forgotten with each neighbour that comes or goes.
TEST(StepLaw, NeighboursThatComeAndGoPayForNoTrialsOfTheirOwn) {
  for (const double stay : {1.0, 3.0}) {
    Program program = kHostBound;
    program.stay = stay;
    Together run;
    Sum sum;
    for (int i = 0; i < 200; ++i) {
      run.law.neighbours(7 + std::uint64_t(i % 2));
      const Sum part = run.run(program, 250);
      sum.took += part.took;
      sum.alone += part.alone;
    }
    EXPECT_LE(sum.longer(), 0.065);
  }
}

// Prevents: what was harmless once is believed for ever.
TEST(StepLaw, GatesCloseAgainWhenOpenOnesHarm) {
  Together run;
  run.run(kHostBound, 20'000);
  ASSERT_EQ(run.law.staying(), StayOpen::State::kOpen);
  Program other = kHostBound;
  other.stay = 0.3;
  EXPECT_LE(run.run(other, 4000).stayed, 2500);
  EXPECT_LE(run.run(other, 20'000).stayed, 600);
}

// Prevents: a neighbour that harms finds the gates open because another one did not.
TEST(StepLaw, OtherNeighboursAreTriedAnew) {
  Together run;
  run.run(kHostBound, 20'000);
  run.law.neighbours(8);
  EXPECT_EQ(run.law.staying(), StayOpen::State::kResting);
  EXPECT_FALSE(run.law.stays_open());
}

TEST(StepLaw, ATargetOfStepsNeedsNoTrial) {
  Together run;
  run.law.set(target("step p99=8ms"));
  EXPECT_EQ(run.run(kHostBound, 10'000).stayed, 0);
  run.law.set({});
  EXPECT_GT(run.run(kHostBound, 20'000).stayed, 0);
  run.law.set(target("step p99=8ms"));
  EXPECT_FALSE(run.law.stays_open());
}

}  // namespace
}  // namespace sluice::intercept::test
