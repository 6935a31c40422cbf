// What a program gives, and what is spent of it, in virtual time. Prevents: several levers that
// each spend all of it, and a mean that nobody looks at.
#include "intercept/jobs/spending.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "tests/intercept/close_programs.hpp"

namespace sluice::intercept::test {
namespace {

using Lever = Spending::Lever;

/// Items of 10 ms without a pause, of which each costs so many ms more.
void run(Spending& spending, std::uint64_t& now, double seconds, double closing,
         double windows = 0) {
  const auto end = now + std::uint64_t(seconds * 1e9);
  while (now < end) {
    const auto took = std::uint64_t((10 + closing + windows) * kMs);
    spending.spend(Lever::kClosing, closing * kMs);
    spending.spend(Lever::kWindows, windows * kMs);
    spending.ended(now += took, took);
  }
}

TEST(Spending, SaysWhatIsSpentOfATimeAlone) {
  Spending spending;
  spending.set(0.05);
  std::uint64_t now = 1;
  run(spending, now, 0.5, 0.1);
  EXPECT_FALSE(spending.is_known());
  run(spending, now, 300, 0.1, 0.3);
  EXPECT_TRUE(spending.is_known());
  EXPECT_NEAR(spending.spent(Lever::kClosing), 0.01, 0.0005);
  EXPECT_NEAR(spending.spent(Lever::kWindows), 0.03, 0.0005);
  EXPECT_EQ(spending.spent(Lever::kOpen), 0);
  EXPECT_NEAR(spending.left(), 0.04, 0.0005) << "windows do not take from windows";
  EXPECT_FALSE(spending.is_overdrawn());
}

TEST(Spending, ForgetsWithinMinutes) {
  Spending spending;
  spending.set(0.05);
  std::uint64_t now = 1;
  run(spending, now, 120, 0.4);
  run(spending, now, 60, 0);
  EXPECT_NEAR(spending.spent(Lever::kClosing), 0.04 * std::exp(-1), 0.003);
  // A pause of the program pays for nothing, and what was spent fades with the time that paid.
  now += 50'000'000'000;
  run(spending, now, 0.02, 0);
  EXPECT_NEAR(spending.spent(Lever::kClosing), 0.04 * std::exp(-1), 0.003);
}

TEST(Spending, PaysBackBeforeMoreIsGiven) {
  Spending spending;
  spending.set(0.05);
  std::uint64_t now = 1;
  run(spending, now, 120, 0.45);
  EXPECT_FALSE(spending.is_overdrawn());
  run(spending, now, 120, 0.3, 0.3);
  EXPECT_TRUE(spending.is_overdrawn()) << "no lever alone has spent more than is given";
  EXPECT_NEAR(spending.left(), 0.02, 0.003);
  run(spending, now, 10, 0);
  EXPECT_TRUE(spending.is_overdrawn()) << "somewhat less was spent, but it is not paid back";
  run(spending, now, 20, 0);
  EXPECT_FALSE(spending.is_overdrawn());
  run(spending, now, 5, 20);
  EXPECT_TRUE(spending.is_overdrawn());
  EXPECT_NEAR(spending.left(), 0.005, 1e-9) << "windows are given something in any case";
}

TEST(Spending, AnAccidentAmongTheFirstItemsIsNoDebt) {
  Spending spending;
  spending.set(0.05);
  spending.ended(1'000'000'000, 10'000'000);
  spending.spend(Lever::kWindows, 10 * kMs);
  spending.ended(1'020'000'000, 20'000'000);
  EXPECT_FALSE(spending.is_overdrawn()) << "a window of one item, and 64 will pay";
  for (int i = 0; i < 5; ++i) spending.spend(Lever::kWindows, 10 * kMs);
  spending.ended(1'030'000'000, 10'000'000);
  EXPECT_TRUE(spending.is_overdrawn());
}

TEST(Spending, WhatWasChargedTooMuchComesBack) {
  Spending spending;
  spending.set(0.05);
  std::uint64_t now = 1;
  run(spending, now, 60, 0, 0.4);
  const double spent = spending.spent(Lever::kWindows);
  spending.spend(Lever::kWindows, -1e9);
  EXPECT_LT(spending.spent(Lever::kWindows), spent - 0.01);
  spending.spend(Lever::kWindows, -1e12);
  EXPECT_EQ(spending.spent(Lever::kWindows), 0) << "nobody is given more for that";
}

/// Open gates cost most jobs nothing, and some of them much, so that the mean is what hurts.
Program drawn(std::mt19937_64& random) {
  Program program = a_critical_program(random);
  program.wait_noise = program.host * between(random, 0.002, 0.1);
  program.share = 1;
  program.kernel = program.host * 0.002;
  if (random() % 2 == 0) {
    program.rare = between(random, 0.003, 0.45);
    program.rare_kernel = program.host * between(random, 0.02, 3);
  } else {
    program.share = between(random, 0.1, 0.9);
    program.kernel = program.host * between(random, 0.02, 0.6);
  }
  return program;
}

// Prevents: levels whose median and tail are harmless, and whose mean is not; and a neighbour whose
// price changes twentyfold while the gates close late.
TEST(Spending, TheMeanOfJobsIsKept) {
  for (const double part : {0.01, 0.02, 0.05, 0.1}) {
    std::mt19937_64 random(11);
    double worst = 0;
    for (int i = 0; i < 100; ++i) {
      const Program first = drawn(random);
      Program second = first;
      second.rare_kernel *= 20;
      second.kernel *= random() % 3 == 0 ? 20 : 1;
      const bool changes = random() % 2 == 0;
      const double drift = random() % 2 == 0 ? 0.4 : 0;
      Together both(random());
      both.give(part);
      Machine closed(random());
      double took = 0, alone = 0, all_took = 0, all_alone = 0;
      for (int minute = 0; minute < 4; ++minute) {
        const Program& program = changes && minute % 2 == 1 ? second : first;
        took = alone = 0;
        for (const auto end = both.now + 60'000'000'000; both.now < end;) {
          const double pace = 1 + drift * std::sin(double(both.now) / 7e9);
          took += both.run(program, 1, pace).durations[0];
          alone += closed.run(program, When::kFirst, 0, 0, pace).duration;
        }
        worst = std::max(worst, took / alone - 1);
        // The price has changed at the begin: some jobs were over before that was known.
        const double surprise = changes && minute != 0 ? 0.11 : 0.01;
        EXPECT_LE(took / alone - 1, 1.4 * part + surprise) << i << ", minute " << minute;
        all_took += took;
        all_alone += alone;
      }
      EXPECT_LE(all_took / all_alone - 1, 1.1 * part + 0.04) << i;
    }
    printf("gives %.0f %%: the worst of 400 minutes is %.1f %% longer\n", 100 * part, 100 * worst);
  }
}

}  // namespace
}  // namespace sluice::intercept::test
