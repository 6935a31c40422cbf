// The law of windows in the steps of a program that is never idle, in virtual time: against
// programs whose period, noise, drift and neighbours are known.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/intercept/step_programs.hpp"

namespace sluice::intercept::test {
namespace {

// Prevents: best effort gets nothing next to a server that is never idle, or everything.
TEST(StepLaw, WindowsCostWhatTheStepsPay) {
  for (const double step : {0.8, 2.0, 5.0, 12.0, 20.0, 45.0, 150.0}) {
    for (const double noise : {0.01, 0.05, 0.1}) {
      for (const double spill : {0.0, 0.5}) {
        const Program program{.step = step, .noise = noise, .spill = spill};
        Together run;
        run.run(program, 2000);
        const Sum sum = run.run(program, 20'000);
        SCOPED_TRACE(testing::Message() << step << " ms, noise " << noise << ", spill " << spill);
        EXPECT_LE(sum.longer(), 0.055);
        EXPECT_GE(sum.open, 0.6 * best_open(program, sum));
        const Sum last = run.run(program, 600);
        EXPECT_NEAR(run.law.cost() / 1000.0, last.longer(), 0.01 + noise / 3);
      }
    }
  }
}

// Prevents: a program that gives 1 % pays 5 %, and one that gives 20 % does, too; and a sum of what
// was spent that is not what the steps took longer.
TEST(StepLaw, StepsPayWhatIsGiven) {
  for (const double part : {0.005, 0.02, 0.1, 0.2}) {
    for (const double overrun : {0.1, 2.0}) {
      const Program program{.step = 20, .overrun = overrun};
      Together run;
      run.law.set_part(part);
      run.run(program, 5000);
      (void)run.law.take_spent();
      const Sum sum = run.run(program, 20'000);
      const StepLaw::Spent spent = run.law.take_spent();
      SCOPED_TRACE(testing::Message() << part << ", overrun " << overrun);
      EXPECT_LE(sum.longer(), 1.1 * part);
      EXPECT_GE(sum.longer(), 0.6 * part);
      EXPECT_NEAR((spent.windows_ns + spent.open_ns) / kMs, sum.took - sum.alone,
                  0.15 * part * sum.alone);
      EXPECT_EQ(run.law.take_spent().windows_ns, 0);
    }
  }
  Together run;
  run.law.set_part(0);
  EXPECT_EQ(run.run({}, 5000).windows, 0);
}

// The same of gates that stay open.
TEST(StepLaw, OpenGatesAreChargedWhatTheyCost) {
  const Program program{.step = 4, .price = 0.3, .overrun = 0.5, .waits = 0.1, .stay = 0.02};
  Together run;
  run.run(program, 5000);
  (void)run.law.take_spent();
  const Sum sum = run.run(program, 40'000);
  EXPECT_GT(sum.stayed, 30'000);
  const StepLaw::Spent spent = run.law.take_spent();
  EXPECT_NEAR((spent.windows_ns + spent.open_ns) / kMs, sum.took - sum.alone, 0.01 * sum.alone);
  EXPECT_GT(spent.open_ns, 10 * spent.windows_ns);
}

TEST(StepLaw, AWindowIsWorthItsSwitches) {
  const Program fast{.step = 5};
  Together run;
  run.run(fast, 2000);
  const Sum sum = run.run(fast, 10'000);
  EXPECT_NEAR(double(sum.windows) / sum.steps, 1.0 / 5.5, 0.05) << "of 1 ms and 0.4 ms on top";
  EXPECT_LE(sum.longest, 1.11);
}

// Prevents: kernels of 20 ms, of which one still runs when the gates close, cost the server a
/// quarter of its time.
TEST(StepLaw, DearWindowsAreRare) {
  const Program program{.step = 20, .overrun = 20};
  Together run;
  EXPECT_LE(run.run(program, 1000).longer(), 0.09) << "from the start on";
  const Sum sum = run.run(program, 20'000);
  EXPECT_LE(sum.longer(), 0.055);
  EXPECT_GT(sum.windows, 100);
}

TEST(StepLaw, CheapWindowsAreLong) {
  const Program program{.step = 20, .noise = 0.01, .price = 0.2, .overrun = 0.05};
  Together run;
  run.run(program, 5000);
  const Sum sum = run.run(program, 20'000);
  EXPECT_LE(sum.longer(), 0.055);
  EXPECT_GE(sum.open, 0.14 * sum.alone);
}

// Prevents: windows that cost nothing have no bound.
TEST(StepLaw, AFreeWindowLeavesAPartOfTheStep) {
  const Program program{.step = 20, .noise = 0, .price = 0, .overrun = 0};
  Together run;
  run.run(program, 5000);
  EXPECT_NEAR(run.run(program, 1000).longest, 20 * 0.8, 0.2);
}

// Prevents: what windows once cost is believed for ever.
TEST(StepLaw, APriceThatChangesIsFollowed) {
  const Program mild{.step = 20};
  const Program harsh{.step = 20, .overrun = 20};
  Together run;
  run.run(mild, 30'000);
  EXPECT_LE(run.run(harsh, 10'000).longer(), 0.10);
  EXPECT_LE(run.run(harsh, 10'000).longer(), 0.06);
  run.run(mild, 40'000);
  EXPECT_GT(run.run(mild, 2000).windows, 1200);
}

// Prevents: nothing is known of a new neighbour, and its first windows are long.
TEST(StepLaw, TheFirstWindowsAreShort) {
  Together run;
  const Sum sum = run.run({.step = 20}, 100);
  EXPECT_GT(sum.windows, 20);
  EXPECT_LE(sum.longest, 1.2);
}

// Prevents: a program that loads another model has no usual steps any more.
TEST(StepLaw, WhatIsUsualMayChange) {
  StepLaw law;
  law.neighbours(1);
  const auto small = law.kind_of(1, 30);
  const auto large = law.kind_of(2, 30);
  for (int i = 0; i < 5000; ++i) law.ended(small, 10'000'000, 0, 0);
  for (int i = 0; i < 100; ++i) law.ended(large, 60'000'000, 0, 0);
  EXPECT_FALSE(law.is_usual(large));
  for (int i = 0; i < 500; ++i) law.ended(large, 60'000'000, 0, 0);
  EXPECT_TRUE(law.is_usual(large));
}

// Prevents: a pause of the host that falls into a window closes the gates for minutes.
TEST(StepLaw, AnAccidentIsNoPrice) {
  const Program program{.step = 20};
  Together run;
  run.run(program, 2000);
  const int before = run.run(program, 300).windows;
  run.law.ended(run.law.kind_of(1, 30), 60'000'000'000, 1'000'000, 0);
  EXPECT_GT(run.run(program, 300).windows, before / 2);
  for (int i = 0; i < 2; ++i) run.law.ended(run.law.kind_of(1, 30), 60'000'000'000, 0, 0);
  const Sum sum = run.run(program, 300);
  EXPECT_LE(sum.longer(), 0.08) << "steps of a reference that took a minute are not long";
}

// Prevents: a host that is late now and then takes all windows: each accident in a window was
// charged to it, and none without one was credited.
TEST(StepLaw, AccidentsAreNotThePriceOfWindows) {
  for (const double step : {3.0, 10.0, 20.0}) {
    for (const double noise : {0.03, 0.2}) {
      SCOPED_TRACE(testing::Message() << step << " ms, noise " << noise);
      const Program free{.step = step, .noise = noise, .price = 0, .overrun = 0, .accidents = 0.03};
      Together at_no_cost;
      at_no_cost.run(free, 2000);
      const Sum sum = at_no_cost.run(free, 20'000);
      EXPECT_GE(sum.open, 0.35 * sum.alone);
      const Program paid{
          .step = step, .noise = noise, .price = 0.3, .overrun = 0, .accidents = 0.03};
      Together at_a_price;
      at_a_price.run(paid, 6000);
      const Sum other = at_a_price.run(paid, 20'000);
      EXPECT_LE(other.longer(), 0.06);
      EXPECT_GE(other.open, 0.4 * best_open(paid, other));
    }
  }
}

// Prevents: a burst of windows after a time in which none could open.
TEST(StepLaw, CreditIsNotSavedUp) {
  const Program fast{.step = 5};
  Together run;
  run.run(fast, 2000);
  for (int i = 0; i < 2000; ++i) run.law.ended(run.law.kind_of(1, 30), 5'000'000, 0, 5'000'000);
  EXPECT_LE(run.run(fast, 100).windows, 30);
}

TEST(StepLaw, DriftIsNoEvidence) {
  const Program program{.step = 20, .noise = 0.05, .drift = 0.3};
  Together run;
  run.run(program, 4000);
  const Sum sum = run.run(program, 20'000);
  EXPECT_LE(sum.longer(), 0.06);
  EXPECT_GE(sum.open, 0.5 * best_open(program, sum));
}

TEST(StepLaw, ALongStepKeepsItsGatesClosed) {
  const Program program{.step = 20, .prefill_every = 9};
  Together run;
  const Sum sum = run.run(program, 5000);
  EXPECT_EQ(sum.windows_in_prefill, 0);
  EXPECT_GT(sum.windows, 2000);
  const auto shown = run.law.shown();
  EXPECT_NEAR(shown[0].share, 889, 15);
  EXPECT_NEAR(double(shown[0].p50_ns), 21 * kMs, kMs);
  EXPECT_NEAR(double(shown[1].p50_ns), 120 * kMs, 5 * kMs);
  EXPECT_EQ(shown[2].kind, 0U);
}

// Prevents: a server that has a graph for each size of its batch has no known step, and no windows.
TEST(StepLaw, AServerMayHaveManyGraphs) {
  const Program program{.kinds = 48};
  Together run;
  run.run(program, 4000);
  const Sum sum = run.run(program, 20'000);
  EXPECT_LE(sum.longer(), 0.055);
  EXPECT_GE(sum.open, 0.6 * best_open(program, sum));
}

// A step that ends with other work queued has no window if that work is a prefill.
TEST(StepLaw, KindsAreKnownByWorkAndLaunches) {
  StepLaw law;
  const auto decode = law.kind_of(5, 100);
  EXPECT_EQ(law.kind_of(5, 110), decode);
  EXPECT_EQ(law.kind_of(5, 95), decode);
  EXPECT_NE(law.kind_of(5, 200), decode) << "as many launches again";
  EXPECT_NE(law.kind_of(6, 100), decode) << "another graph";
  EXPECT_FALSE(law.is_usual(decode)) << "nothing is known of it";
  EXPECT_FALSE(law.is_usual(0));
  for (std::size_t i = 0; i < StepLaw::kEnough; ++i) {
    EXPECT_FALSE(law.is_usual(decode));
    EXPECT_EQ(law.window_ns(), 0U);
    law.ended(decode, 20'000'000, 0, 0);
  }
  law.ended(decode, 20'000'000, 0, 0);  // the first one may have begun with open gates
  EXPECT_TRUE(law.is_usual(decode));
}

// Prevents: a program that makes new graphs all the time drives out the kind that it uses, or
/// takes memory.
TEST(StepLaw, NewKindsWithoutEndReplaceEachOther) {
  StepLaw law;
  law.neighbours(1);
  for (std::uint64_t i = 0; i < 10'000; ++i) {
    law.ended(law.kind_of(1000 + i, 50), 20'000'000, 0, 0);
    EXPECT_EQ(law.window_ns(), 0U) << "no step is usual";
  }
  EXPECT_TRUE(law.learning());
  StepLaw::Kind decode = 0;
  for (std::uint64_t i = 0; i < 200; ++i) {
    decode = law.kind_of(1, 50);
    law.ended(decode, 20'000'000, 0, 0);
    law.ended(law.kind_of(100'000 + i, 50), 20'000'000, 0, 0);
  }
  EXPECT_TRUE(law.is_usual(decode));
  EXPECT_FALSE(law.is_usual(law.kind_of(300'000, 50)));
}

TEST(StepLaw, OneStepInSixteenAndTheOneBeforeItAreReferences) {
  const Program program{.step = 40};
  Together run;
  run.run(program, 2000);
  int pairs = 0;
  bool before = false;
  for (int i = 0; i < 1600; ++i) {
    const bool open = run.run(program, 1).windows != 0;
    pairs += !open && !before ? 1 : 0;
    before = open;
  }
  EXPECT_GE(pairs, 95);
}

// Prevents: what one neighbour costs is believed of another for long.
TEST(StepLaw, OtherNeighboursCostSomethingElse) {
  const Program harsh{.step = 20, .overrun = 20};
  const Program mild{.step = 20};
  Together run;
  run.run(harsh, 20'000);
  EXPECT_LE(run.run(mild, 100).windows, 10);
  run.law.neighbours(8);
  run.run(mild, 1000);
  EXPECT_GE(run.run(mild, 100).windows, 35) << "after 20 seconds";
}

TEST(StepLaw, ATargetIsKeptAndLeavesNothing) {
  for (const double noise : {0.01, 0.03, 0.05}) {
    const Program program{.step = 20, .noise = noise, .prefill_every = 25};
    for (const char* text : {"step p99=25ms", "step p95=25ms", "step p50=25ms"}) {
      SCOPED_TRACE(testing::Message() << text << ", noise " << noise);
      Together run;
      run.law.set(target(text));
      run.run(program, 3000);
      const Sum sum = run.run(program, 20'000, 25);
      const double missed = double(sum.late) / sum.usual;
      const double allowed = 1 - target(text).per_mille / 1000.0;
      EXPECT_LE(missed, allowed * 1.1 + 0.001);
      // The slack at the percentile, without the overrun, the delay and the stride of the rule.
      const double slack = 25 - 20 * std::exp(noise * 2.4);
      EXPECT_GE(sum.open / sum.steps, 0.4 * slack) << sum.open / sum.steps << " of " << slack;
      EXPECT_FALSE(run.law.missed());
    }
  }
}

TEST(StepLaw, ARelativeTargetIsOfTheStepsOwnTime) {
  const Program program{.step = 20, .noise = 0.03};
  Together run;
  run.law.set(target("step p99=1.3x"));
  run.run(program, 3000);
  EXPECT_NEAR(double(run.law.alone_ns()), 21.5 * kMs, kMs);
  EXPECT_NEAR(double(run.law.limit_ns()), 28 * kMs, 1.5 * kMs);
  const Sum sum = run.run(program, 20'000, 28);
  EXPECT_LE(double(sum.late) / sum.usual, 0.02);
  EXPECT_GE(sum.open / sum.steps, 2.5);
}

// Prevents: the first minute of a target is like a minute without one.
TEST(StepLaw, ATargetIsUsedSoon) {
  const Program program{.step = 10};
  Together run;
  run.law.set(target("step p99=30ms"));
  const Sum first = run.run(program, 300, 30);
  EXPECT_LE(first.late, 3) << "of 300, by the rule itself";
  const Sum sum = run.run(program, 1000, 30);
  EXPECT_GE(sum.open / sum.steps, 0.75 * 20) << "of the 20 ms that the target leaves";
  EXPECT_LE(sum.late, 20);
  run.law.neighbours(8);
  EXPECT_LE(run.run(program, 20).open / 20, 1.5) << "others may cost more";
  EXPECT_GE(run.run(program, 400).open / 400, 8);
}

// Prevents: of two settings the looser one decides.
TEST(StepLaw, ATargetAndWhatIsGivenBothHold) {
  const Program program{.step = 10};
  for (const double part : {0.02, 0.1}) {
    Together run;
    run.law.set_part(part, true);
    run.law.set(target("step p99=30ms"));
    run.run(program, 3000);
    const Sum sum = run.run(program, 20'000, 30);
    EXPECT_LE(sum.longer(), 1.1 * part) << "the target alone would pay 200 %";
    EXPECT_GE(sum.longer(), 0.5 * part);
    run.law.set(target("step p99=10.9ms"));
    run.run(program, 5000);
    EXPECT_LE(double(run.run(program, 20'000, 10.9).late), 0.015 * 20'000) << "a tight target";
    run.law.set_part(part);
    run.law.set(target("step p99=30ms"));
    run.run(program, 3000);
    EXPECT_GE(run.run(program, 2000).longer(), 1.5) << "a default does not bind a target";
  }
}

// Prevents: best effort gets nothing for as long as a target is set that closed gates do not keep
// either; or such a target opens gates for more than it would without.
TEST(StepLaw, AHopelessTargetCountsAsNone) {
  const Program program{.step = 20};
  Together run;
  run.law.set(target("step p99=19ms"));
  EXPECT_EQ(run.run(program, 500).windows, 0);
  run.run(program, 1500);
  EXPECT_TRUE(run.law.missed());
  EXPECT_FALSE(run.law.learning());
  const Sum sum = run.run(program, 10'000);
  EXPECT_LE(sum.longer(), 0.055);
  EXPECT_GE(sum.open, 0.6 * best_open(program, sum));
  EXPECT_TRUE(run.law.missed());
  run.law.set(target("step p99=40ms"));
  EXPECT_FALSE(run.law.missed());
  EXPECT_GT(run.run(program, 2000).windows, 1000);
}

// Prevents: a target that could not be kept next to somebody else is given up for ever: the steps
// that windows make late say nothing of it.
TEST(StepLaw, ATargetIsKeptAgainWhenStepsAreShortAgain) {
  Program program{.step = 20};
  Together run;
  run.law.set(target("step p99=24ms"));
  run.run(program, 1000);
  program.step = 30;
  run.run(program, 3000);
  EXPECT_TRUE(run.law.missed());
  program.step = 20;
  run.run(program, 3000);
  EXPECT_FALSE(run.law.missed());
  const Sum sum = run.run(program, 10'000, 24);
  EXPECT_LE(double(sum.late) / sum.usual, 0.012);
}

// Prevents: a multiple of a time that was not alone. And nobody starves until it is known.
TEST(StepLaw, AMultipleOfWhatNobodyKnowsCountsAsNone) {
  const Program program{.step = 7};
  Together run;
  run.is_alone = false;
  run.law.set(target("step p99=1.2x"));
  run.run(program, 1000);
  const Sum sum = run.run(program, 20'000);
  EXPECT_EQ(run.law.limit_ns(), 0U);
  EXPECT_TRUE(run.law.learning());
  EXPECT_LE(sum.longer(), 0.055);
  EXPECT_GE(sum.open, 0.3 * best_open(program, sum)) << "half of the steps are references";
  run.is_alone = true;
  run.run(program, 400);
  EXPECT_FALSE(run.law.learning());
  EXPECT_NEAR(double(run.law.alone_ns()), 7.4 * kMs, 0.4 * kMs);
}

// Prevents: what was alone is forgotten next to somebody else, or what somebody unseen slowed down
// stays.
TEST(StepLaw, TheTimeAloneStaysAndWhatIsDoubtfulGoes) {
  StepLaw law(1, 2'000'000'000);
  law.neighbours(1);
  law.set(target("step p99=1.5x"));
  const auto kind = law.kind_of(1, 30);
  std::uint64_t now = 0;
  const auto steps = [&](int count, std::uint64_t took, bool alone) {
    for (int i = 0; i < count; ++i) law.ended(kind, took, 0, 0, alone, now += took);
  };
  steps(200, 10'000'000, true);
  EXPECT_EQ(law.limit_ns(), 0U) << "somebody may be seen";
  steps(100, 10'000'000, true);
  EXPECT_EQ(law.limit_ns(), 15'000'000U);
  steps(1000, 18'000'000, false);
  EXPECT_EQ(law.limit_ns(), 15'000'000U);
  steps(100, 18'000'000, true);
  EXPECT_EQ(law.limit_ns(), 15'000'000U);
  law.somebody_outside(now);
  steps(200, 18'000'000, false);
  steps(1, 10'000'000, true);
  EXPECT_EQ(law.limit_ns(), 15'000'000U);
}

// Prevents: numbers that no clock gives end in windows without a bound.
TEST(StepLaw, BearsAnyNumbers) {
  for (const char* text : {"none", "step p99=1us", "step p99.9=3600s", "step p50=100x"}) {
    StepLaw law;
    law.set(target(text));
    law.neighbours(1);
    std::mt19937_64 random(5);
    const auto any = [&] { return random() >> (random() % 64); };
    for (int i = 0; i < 50'000; ++i) {
      law.ended(i % 3 == 0 ? law.kind_of(random() % 3, any() % 50) : random() % 20, any(),
                i % 5 == 0 ? any() : 0, any());
      const std::uint64_t window = law.window_ns();
      EXPECT_TRUE(window == 0 || window >= StepLaw::kShortestWindowNs);
    }
    for (int i = 0; i < 5000; ++i) law.ended(law.kind_of(9, 7), 20'000'000, 0, 20'000'000);
    const std::uint64_t most = law.stays_open() ? 80'000'000 : 16'000'000;
    const bool kept = law.limit_ns() != 0 && !law.missed();
    EXPECT_LE(law.window_ns(), kept ? law.limit_ns() : most);
    EXPECT_TRUE(law.is_usual(law.kind_of(9, 7)));
  }
}

}  // namespace
}  // namespace sluice::intercept::test
