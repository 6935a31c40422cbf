// Whether gates may stay open in the steps of a program: the trial, in virtual time.
#include "intercept/jobs/stay_open.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace sluice::intercept::test {
namespace {

using Gates = StayOpen::Gates;
using State = StayOpen::State;

struct Program {
  double step_ms = 5;
  double noise = 0.05;      ///< Sigma of the logarithm.
  double longer = 0;        ///< The part by which open gates lengthen a step.
  double late = 0.01;       ///< The part of its steps that is late, with closed gates,
  double late_open = 0.01;  ///< and with open ones.
  double waits = 0.1;
};

class Trial {
 public:
  explicit Trial(std::uint64_t seed = 1) : random_(seed) {}

  /// Runs until the state is another one, `most` steps at most. Returns how many.
  int run(const Program& program, int most) {
    const State before = law.state();
    int steps = 0;
    while (steps < most && law.state() == before) {
      step(program);
      ++steps;
    }
    return steps;
  }

  void step(const Program& program) {
    const Gates gates = law.gates();
    const bool open = gates == Gates::kOpen;
    const bool late = uniform_(random_) < (open ? program.late_open : program.late);
    const double part =
        std::exp(program.noise * normal_(random_)) * (open ? 1 + program.longer : 1);
    open_steps += open ? 1 : 0;
    law.ended({program.step_ms * 1e6 * part, part, open ? 1.0 : 0.0, late, program.waits}, true);
  }

  StayOpen law;
  int open_steps = 0;

 private:
  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::uniform_real_distribution<double> uniform_{0, 1};
};

TEST(StayOpen, AsksAtOnceUnlessTheProgramKeepsTheGpuBusy) {
  Trial host_bound;
  EXPECT_EQ(host_bound.run({}, 10'000), 64);
  EXPECT_EQ(host_bound.law.state(), State::kTrying);
  Trial busy;
  EXPECT_EQ(busy.run({.waits = 0.9}, 10'000), int(StayOpen::kFirstPause));
  Trial narrow;  // open gates let run what uses half of the SMs
  narrow.law.set_narrow(true);
  EXPECT_EQ(narrow.run({.waits = 0.9}, 10'000), 64);
  narrow.law.begin_anew();
  EXPECT_EQ(narrow.run({.waits = 0.9}, 10'000), 64) << "next to another such neighbour";
}

// Prevents: a program that gives 1 % lets gates stay open that cost it 4 %, and one that gives 10 %
// does not.
TEST(StayOpen, MayCostWhatIsGiven) {
  for (const double part : {0.01, 0.05, 0.1}) {
    int open_below = 0, open_above = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      Trial cheap{seed}, dear{seed};
      for (Trial* const each : {&cheap, &dear}) each->law.set_part(part);
      for (int i = 0; i < 20'000; ++i) cheap.step({.noise = part / 2, .longer = part / 4});
      for (int i = 0; i < 20'000; ++i) dear.step({.noise = part / 2, .longer = part * 2});
      open_below += cheap.law.state() == State::kOpen ? 1 : 0;
      open_above += dear.law.state() == State::kOpen ? 1 : 0;
    }
    EXPECT_GE(open_below, 15) << part;
    EXPECT_LE(open_above, 1) << part;
  }
}

// Prevents: staying open is taken for harmless where it harms by just what is not allowed, in the
// middle or in the tail.
TEST(StayOpen, WhatHarmsIsSeldomAccepted) {
  const Program longer{.longer = StayOpen::kMore};
  const Program later{.late_open = 0.01 + 1.2 * StayOpen::kMoreLate};
  for (const Program& program : {longer, later}) {
    int accepted = 0;
    for (std::uint64_t seed = 1; seed <= 400; ++seed) {
      Trial trial(seed);
      trial.run(program, 100);
      trial.run(program, 100'000);
      accepted += trial.law.state() == State::kOpen ? 1 : 0;
    }
    EXPECT_LE(accepted, 10) << "1 in 100, and three standard deviations";
  }
}

TEST(StayOpen, WhatIsHarmlessIsMostlyAccepted) {
  int accepted = 0;
  double steps = 0;
  double open = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Trial trial(seed);
    const Program program{.noise = 0.1, .longer = 0.01};
    trial.run(program, 100);
    steps += trial.run(program, 100'000);
    accepted += trial.law.state() == State::kOpen ? 1 : 0;
    open += trial.open_steps;
  }
  EXPECT_GE(accepted, 160);
  EXPECT_LE(steps / 200, 17'000);
  EXPECT_GE(open / steps, 0.8) << "while it is likely";
}

// Prevents: a trial of what doubles the steps goes on for seconds.
TEST(StayOpen, WhatHarmsMuchEndsSoon) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    Trial trial(seed);
    const Program program{.step_ms = 20, .longer = 1};
    trial.run(program, 100);
    trial.run(program, 100'000);
    EXPECT_EQ(trial.law.state(), State::kResting);
    EXPECT_LE(trial.open_steps, 60 + 20) << "20 of them while slices follow";
  }
}

// Prevents: a trial that goes well at first makes many steps late.
TEST(StayOpen, WhatHarmsTheTailEndsSoon) {
  for (const double late_open : {0.03, 0.06, 0.2}) {
    double open = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
      Trial trial(seed);
      const Program program{.late_open = late_open};
      trial.run(program, 100);
      trial.run(program, 100'000);
      EXPECT_EQ(trial.law.state(), State::kResting);
      open += trial.open_steps;
    }
    EXPECT_LE(open / 200 * (late_open - 0.01), late_open < 0.05 ? 120 : 35) << late_open;
  }
}

TEST(StayOpen, EachTrialThatFailsDoublesThePause) {
  Trial trial;
  const Program program{.step_ms = 20, .longer = 1};
  trial.run(program, 100);
  for (std::uint64_t pause = StayOpen::kFirstPause; pause <= StayOpen::kLongestPause; pause *= 2) {
    trial.run(program, 1000);
    EXPECT_EQ(trial.run(program, 1'000'000), int(pause));
  }
  trial.run(program, 1000);
  EXPECT_EQ(trial.run(program, 1'000'000), int(StayOpen::kLongestPause));
}

// Prevents: the doubt of a trial that failed ends the next one, or a trial that went well makes
// those behind it frequent at once.
TEST(StayOpen, EachTrialBeginsAnew) {
  const Program harmful{.step_ms = 20, .longer = 1};
  Trial trial;
  trial.run(harmful, 100);
  for (int failed = 0; failed < 2; ++failed) {
    trial.run(harmful, 1000);
    trial.run(harmful, 1'000'000);
  }
  ASSERT_EQ(trial.law.state(), State::kTrying);
  trial.run({}, 100'000);
  EXPECT_EQ(trial.law.state(), State::kOpen);
  trial.run(harmful, 100'000);
  ASSERT_EQ(trial.law.state(), State::kResting);
  EXPECT_EQ(trial.run(harmful, 1'000'000), int(2 * StayOpen::kFirstPause));
}

TEST(StayOpen, IsWatchedWhileOpen) {
  Trial trial;
  trial.run({}, 100);
  trial.run({}, 100'000);
  ASSERT_EQ(trial.law.state(), State::kOpen);
  trial.open_steps = 0;
  for (int i = 0; i < 8000; ++i) trial.step({});
  EXPECT_EQ(trial.law.state(), State::kOpen);
  EXPECT_NEAR(trial.open_steps, 7750, 50) << "one block in 32 has closed gates";
  EXPECT_LE(trial.run({.longer = 0.3}, 100'000), 2000);
  EXPECT_EQ(trial.law.state(), State::kResting);
}

TEST(StayOpen, IsWatchedInTheTail) {
  Trial trial;
  trial.run({}, 100);
  trial.run({}, 100'000);
  ASSERT_EQ(trial.law.state(), State::kOpen);
  EXPECT_LE(trial.run({.late_open = 0.2}, 100'000), 5000);
}

// Prevents: steps in which the gates did something else are evidence.
TEST(StayOpen, OnlyStepsThatDidAsAskedCount) {
  Trial trial;
  trial.run({}, 100);
  ASSERT_EQ(trial.law.state(), State::kTrying);
  const Gates first = trial.law.gates();
  const StayOpen::Step other{5e6, 1, first == Gates::kOpen ? 0.5 : 0.1, false, 0.1};
  for (std::uint64_t i = 0; i < StayOpen::kMostOfBlock; ++i) {
    ASSERT_EQ(trial.law.gates(), first);
    trial.law.ended(other, true);
  }
  trial.law.ended(other, true);
  EXPECT_EQ(trial.law.state(), State::kResting) << "a block that does not end ends the trial";
}

// Prevents: nobody is below for a while, and the answer is "no" for long.
TEST(StayOpen, StepsWithoutAnybodyBelowEndNoTrial) {
  Trial trial;
  trial.run({}, 100);
  while (trial.law.gates() != Gates::kOpen) trial.step({});
  for (std::uint64_t i = 0; i < 10 * StayOpen::kMostOfBlock; ++i) {
    trial.law.ended({5e6, 1, 0, false, 0.1}, true);
  }
  EXPECT_EQ(trial.law.state(), State::kTrying);
  EXPECT_EQ(trial.law.gates(), Gates::kOpen);
}

// Prevents: a trial goes on for minutes where gates open in every other step only.
TEST(StayOpen, StepsThatStayClosedBeginNoBlockAnew) {
  Trial trial;
  trial.run({}, 100);
  while (trial.law.gates() != Gates::kOpen) trial.step({});
  std::uint64_t steps = 0;
  for (; trial.law.state() == State::kTrying && steps < 4 * StayOpen::kMostOfBlock; ++steps) {
    trial.law.ended({5e6, 1, steps % 2 == 0 ? 1.0 : 0.0, false, 0.1}, true);
  }
  EXPECT_NEAR(double(steps), 2.0 * StayOpen::kMostOfBlock, 2);
}

// Prevents: a step of ten times its time, which the gates do not stay open for, is no evidence.
TEST(StayOpen, TheWorstStepsCount) {
  Trial trial;
  trial.run({}, 100);
  for (int i = 0; i < 10'000 && trial.law.state() == State::kTrying; ++i) {
    const bool open = trial.law.gates() == Gates::kOpen;
    trial.law.ended({open ? 50e6 : 5e6, open ? 10.0 : 1.0, open ? 0.4 : 0.0, open, 0.1}, true);
    trial.open_steps += open ? 1 : 0;
  }
  EXPECT_EQ(trial.law.state(), State::kResting);
  EXPECT_LE(trial.open_steps, 80);
}

// A prefill is compared with nothing, and those behind it may feel it.
TEST(StayOpen, BehindAStepThatIsNotUsualABlockSettles) {
  Trial trial;
  const Program program{.noise = 0};
  trial.run(program, 100);
  const Gates first = trial.law.gates();
  int steps = 0;
  for (; trial.law.gates() == first && steps < 100; ++steps) {
    if (steps % 4 == 3) {
      trial.law.ended({}, false);
    } else {
      trial.step(program);
    }
  }
  EXPECT_EQ(steps, 4 * int(StayOpen::kBlock) - 1) << "two of three settle, and the third counts";
}

// Prevents: prefills so often that no block ends leave the gates closed, or open, for ever.
TEST(StayOpen, ABlockThatDoesNotEndEndsTheTrial) {
  Trial trial;
  trial.run({}, 100);
  for (std::uint64_t i = 0; i <= StayOpen::kMostOfBlock / 2; ++i) {
    trial.step({});
    trial.law.ended({}, false);
  }
  EXPECT_EQ(trial.law.state(), State::kResting);
}

TEST(StayOpen, ATrialWaitsUntilTheLastOneIsPaid) {
  Trial trial;
  for (int i = 0; i < 1000; ++i) trial.law.ended({5e6, 1, 0, false, 0.1, false}, true);
  EXPECT_EQ(trial.law.state(), State::kResting);
  trial.step({});
  EXPECT_EQ(trial.law.state(), State::kTrying);
}

// Prevents: pairs from before the slices of the GPU have followed decide.
TEST(StayOpen, TheFirstPairsSayNothing) {
  Trial trial;
  const Program program{.step_ms = 1, .longer = 1};
  trial.run(program, 100);
  const int steps = trial.run(program, 100'000);
  EXPECT_GE(steps, int(StayOpen::kSlicesNs / 2e6));
}

// Prevents: steps of 1 ms are compared while a kernel of best effort from the block before still
// runs.
TEST(StayOpen, ABlockSettlesFirst) {
  for (const double step_ms : {0.5, 4.0, 50.0}) {
    SCOPED_TRACE(step_ms);
    Trial trial;
    const Program program{.step_ms = step_ms, .noise = 0};
    trial.run(program, 100);
    const Gates first = trial.law.gates();
    int steps = 0;
    for (; trial.law.gates() == first; ++steps) trial.step(program);
    EXPECT_EQ(steps, std::max(1, int(std::ceil(10 / step_ms))) + int(StayOpen::kBlock));
  }
}

}  // namespace
}  // namespace sluice::intercept::test
