#include "intercept/jobs/close_law.hpp"

#include <gtest/gtest.h>

#include <random>

#include "tests/intercept/close_programs.hpp"

namespace sluice::intercept {
namespace {

using test::best_possible;
using test::chance;
using test::Cost;
using test::cost_of_level;
using test::kMs;
using test::Program;
using test::search;
using test::Together;
using test::When;
using State = CloseLaw::State;

void say(const char* what, const CloseLaw::Status& status, double share, double best) {
  printf("%-24s level %u, cost %.3f ms [%.3f, %.3f], best effort %.2f of %.2f ms, %llu jobs\n",
         what, status.level, double(status.cost_ns) / kMs, double(status.cost_low_ns) / kMs,
         double(status.cost_high_ns) / kMs, share, best,
         static_cast<unsigned long long>(status.jobs));
}

/// Of so many jobs, those while a level was tried.
int jobs_while_tried(Together& run, const Program& program, std::uint64_t jobs) {
  int tried = 0;
  for (; jobs > 0; --jobs) {
    run.run(program, 1);
    if (run.status().pairs != 0) ++tried;
  }
  return tried;
}

// The point of the law: 1,000 launches in 5 ms that keep the GPU busy for 1.5 ms. Closed gates give
// best effort nothing of the rest.
TEST(CloseLaw, AHostBoundJobGivesAwayWhatItDoesNotNeed) {
  for (const double noise : {0.02, 0.2}) {
    for (const double share : {0.25, 0.4}) {
      Program eager;
      eager.host_noise = noise;
      eager.share = share;
      Together run(1);
      search(run, eager);
      const auto sum = run.run(eager, 5000);
      const auto status = run.status();
      const double best = best_possible(eager);
      say("eager", status, sum.share(), best);
      EXPECT_EQ(status.state, State::kClosesLater);
      EXPECT_TRUE(cost_of_level(eager, status.level).harmless());
      EXPECT_GE(sum.share(), 0.75 * best);
      EXPECT_LE(status.cost_low_ns, status.cost_ns);
      EXPECT_LT(double(status.cost_high_ns), 0.02 * 5 * kMs);
    }
  }
}

// Prevents: a job that keeps the GPU busy pays for the search again and again.
TEST(CloseLaw, AJobThatKeepsTheGpuBusyClosesAtFirst) {
  Program graph;
  graph.launches = 4;
  graph.host = 2;
  graph.gpu = 5;
  graph.kernel = 0.1;
  Together run(2);
  const auto status = search(run, graph);
  EXPECT_EQ(status.state, State::kClosesAtFirst);
  EXPECT_EQ(status.level, 0U);
  EXPECT_LT(status.jobs, 200U);
  const int later = jobs_while_tried(run, graph, 40'000);
  printf("%d of 40000 jobs while a level was tried\n", later);
  EXPECT_LT(later, 40'000 / 100);
  EXPECT_EQ(run.status().state, State::kClosesAtFirst);
}

// Prevents: of the first 500 jobs of a graph, 30 are trials, and its p99 is that without gates.
TEST(CloseLaw, AJobThatIsNearlyAllWaitIsNotTriedAtFirst) {
  Program graph;
  graph.launches = 1;
  graph.host = 0.2;
  graph.gpu = 1;
  graph.kernel = 2;
  Together run(2);
  EXPECT_EQ(jobs_while_tried(run, graph, CloseLaw::kFirstPause - 2), 0);
  EXPECT_EQ(run.status().state, State::kClosesAtFirst) << "so it may be predicted";
  EXPECT_GT(jobs_while_tried(run, graph, 200), 5) << "it may be wrong";
  EXPECT_EQ(run.status().level, 0U) << "in force is what was found";
  Together next_to_half(2);
  next_to_half.narrow = true;
  EXPECT_GT(jobs_while_tried(next_to_half, graph, 200), 5) << "half of the SMs may do no harm";
}

// Where closing brings nothing, nobody should pay for it. `status` has to say so.
TEST(CloseLaw, GatesStayOpenWhereClosingBringsNothing) {
  Program program;
  program.share = 1;
  program.kernel = 0.02;
  Together run(3);
  const auto status = search(run, program);
  EXPECT_EQ(status.state, State::kStaysOpen);
  const auto sum = run.run(program, 2000);
  EXPECT_GE(sum.share(), 0.9 * best_possible(program));
  // It stops to be so.
  program.share = 0.2;
  program.gpu = 3;
  run.run(program, 400);
  EXPECT_NE(run.status().level, CloseLaw::kNeverLevel);
  // It is so again, which only the trial after half an hour finds.
  program.share = 1;
  run.now += CloseLaw::kNeverPeriodNs;
  run.run(program, 10'000);
  EXPECT_EQ(run.status().state, State::kStaysOpen);
}

// Prevents: one job in 25 that is much too late, which no median shows.
TEST(CloseLaw, ATailThatSuffersIsEnough) {
  int wrong = 0;
  double late = 0;
  constexpr int kRuns = 40;
  for (int seed = 0; seed < kRuns; ++seed) {
    Program program;
    program.rare = 0.04;
    program.rare_kernel = 6;
    Together run(seed);
    const auto status = search(run, program, 60'000);
    if (status.level != 0) ++wrong;
    late += double(status.jobs) / kRuns;
  }
  printf("tail: %d of %d runs end late; %.0f jobs to the end of the search\n", wrong, kRuns, late);
  EXPECT_LE(wrong, chance(kRuns));
  EXPECT_LT(late, 12'000);
}

// Prevents: the first jobs, which load and compile, make everything after them look short.
TEST(CloseLaw, LongFirstJobsAreNoMeasure) {
  double jobs = 0;
  for (int seed = 0; seed < 20; ++seed) {
    Program loads;
    loads.host = 5000;
    Program program;
    program.rare = 0.3;
    program.rare_kernel = 12;
    Together run(seed);
    run.run(loads, CloseLaw::kFirst);
    jobs += double(search(run, program).jobs) / 20;
  }
  printf("long first jobs: %.0f jobs to the end of the search\n", jobs);
  EXPECT_LT(jobs, 300);
}

// Open gates also take processors, caches and memory bandwidth, which waits do not show.
TEST(CloseLaw, WhatOnlyTheDurationShowsIsFound) {
  Program program;
  program.slower = 0.1;
  program.host_noise = 0.05;
  Together run(5);
  search(run, program);
  EXPECT_EQ(run.status().level, 0U);
}

// Prevents: two kinds of jobs under one fingerprint, of which the law sees only the kind that does
// not suffer.
TEST(CloseLaw, TheShapeThatSuffersDecides) {
  for (const double part : {0.1, 0.4, 0.6}) {
    Program program;
    program.other_shape = part;
    program.other_gpu = 6;
    Together run(6);
    search(run, program, 60'000);
    const auto status = run.status();
    const Cost cost = cost_of_level(program, status.level);
    printf("bimodal %.1f: level %u, %.2f above, %.3f more late\n", part, status.level, cost.above,
           cost.more_late);
    EXPECT_TRUE(cost.harmless()) << part;
  }
}

// Prevents: a reference that is always the job of the slow kind, so that the other kind seems to
// cost nothing.
TEST(CloseLaw, JobsThatAlternateAreNotComparedByKind) {
  Program fast;
  fast.share = 0.1;
  fast.gpu = 4;
  Program slow = fast;
  slow.gpu = 6.5;
  for (const bool slow_first : {false, true}) {
    Together run(17);
    if (slow_first) run.run(slow, 1);
    for (int i = 0; i < 6000; ++i) {
      run.run(fast, 1);
      run.run(slow, 1);
      ASSERT_LE(run.status().level == CloseLaw::kNeverLevel ? 0 : run.status().level, 2U) << i;
    }
    EXPECT_EQ(run.status().state, State::kClosesAtFirst);
  }
}

TEST(CloseLaw, HeavyTailsDoNotHideAHarmlessMoment) {
  Program program;
  program.heavy = true;
  Together run(7);
  const auto status = search(run, program);
  EXPECT_EQ(status.state, State::kClosesLater);
  EXPECT_GE(run.run(program, 3000).share(), 0.75 * best_possible(program));
}

// The host gets slower by 1.8, again and again. References of the same seconds follow it.
TEST(CloseLaw, ADriftOfTheHostIsNoCostAndNoGain) {
  Program program;
  program.share = 0.25;
  Together run(8);
  search(run, program);
  double got = 0;
  int harmed = 0;
  constexpr int kJobs = 60'000;
  for (int i = 0; i < kJobs; ++i) {
    const double pace = 1.4 + 0.4 * std::sin(i * 2 * 3.14159265 / 8000);
    const auto sum = run.run(program, 1, pace);
    got += sum.share() / pace / kJobs;
    if (sum.waits[0] > 0.6) ++harmed;
  }
  const double best = best_possible(program);
  printf("drift: best effort %.2f of %.2f ms; %.2f %% harmed\n", got, best, 100.0 * harmed / kJobs);
  EXPECT_GE(got, 0.7 * best);
  EXPECT_LT(harmed, kJobs / 100);
}

// The program becomes one that needs the GPU. The gates must not stay open for long.
TEST(CloseLaw, FallsWhenTheProgramChanges) {
  Program before;
  Program after;
  after.gpu = 6;
  Together run(9);
  search(run, before);
  ASSERT_GE(run.status().level, 6U);
  int jobs = 0;
  while (!cost_of_level(after, run.status().level).harmless() && jobs < 5000) {
    run.run(after, 10);
    jobs += 10;
  }
  printf("falls within %d jobs\n", jobs);
  EXPECT_LT(jobs, 300);
}

// Each set of neighbours has a level of its own, and no evidence crosses.
TEST(CloseLaw, ANeighbourThatComesAndGoesIsRemembered) {
  Program gentle;
  Program rough;
  rough.share = 0.1;
  rough.gpu = 4.5;
  rough.kernel = 2;
  Together run(10);
  search(run, gentle);
  const unsigned level = run.status().level;
  run.neighbours = 8;
  EXPECT_EQ(run.status().state, State::kLearning);
  search(run, rough);
  EXPECT_TRUE(cost_of_level(rough, run.status().level).harmless());
  run.neighbours = 7;
  EXPECT_EQ(run.status().level, level);
  // While nobody is below, or the neighbour has nothing to do, nothing is learned about cost.
  const auto pairs = run.status().pairs;
  run.neighbour_busy = false;
  run.run(gentle, 1000);
  EXPECT_EQ(run.status().pairs, pairs);
  EXPECT_EQ(run.status().level, level);
  run.neighbours = 0;
  const auto decision = run.law.decide(1, 0, run.now);
  EXPECT_EQ(decision.when, When::kFirst);
}

// Neighbours that change while a job runs: the job belongs to neither set.
TEST(CloseLaw, AJobAcrossAChangeIsNoEvidence) {
  CloseLaw law;
  for (int i = 0; i < 5000; ++i) {
    const auto decision = law.decide(1, 1, 1);
    const std::uint64_t closed = decision.when == When::kFirst ? 0 : 500;
    const CloseLaw::Job job{10, 1000, 100, closed, true, 2};
    law.ended(decision, job);
  }
  EXPECT_EQ(law.status(1, 1).pairs, 0U);
  EXPECT_EQ(law.status(1, 1).state, State::kLearning);
}

// A program that makes new fingerprints for ever: bounded memory, and what it does often is kept.
TEST(CloseLaw, NewFingerprintsForEverDriveOutNothingThatIsUsed) {
  Program eager;
  Together run(12);
  search(run, eager);
  const unsigned level = run.status().level;
  ASSERT_NE(level, 0U);
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    run.fingerprint = 100 + i;
    const auto decision = run.law.decide(run.fingerprint, run.neighbours, run.now);
    EXPECT_EQ(decision.when, When::kFirst);
    CloseLaw::Job job;
    job.closed_ns = 0;
    run.law.ended(decision, job);
    run.fingerprint = 1;
    if (i % (CloseLaw::kEntries - 1) == 0) run.run(eager, 1);
  }
  EXPECT_EQ(run.status().level, level);
  EXPECT_EQ(run.status().state, State::kClosesLater);
}

// Prevents: a job that ends after its entry was given to another fingerprint, as evidence for that.
TEST(CloseLaw, AJobThatEndsLateIsNoEvidenceForAnother) {
  CloseLaw law;
  CloseLaw::Job job;
  job.closed_ns = 0;
  job.duration_ns = 1000;
  job.neighbour_busy = true;
  job.neighbours = 1;
  CloseLaw::Decision old;
  for (int i = 0; i < 20; ++i) old = law.decide(1, 1, 1);
  for (std::uint64_t other = 2; other < 2 + CloseLaw::kEntries; ++other) {
    for (int i = 0; i < 20; ++i) (void)law.decide(other, 1, 1);
  }
  for (int i = 0; i < 1000; ++i) law.ended(old, job);
  EXPECT_EQ(law.status(1, 1).jobs, 0U);
  for (std::uint64_t other = 2; other < 2 + CloseLaw::kEntries; ++other) {
    for (int i = 0; i < 20; ++i) EXPECT_EQ(law.decide(other, 1, 1).when, When::kFirst);
  }
}

// Prevents: gates stay closed before a job of which the law tries, or has found, something else.
TEST(CloseLaw, TellsWhetherAllJobsOfAKindCloseAtFirst) {
  Together run(14);
  const auto at_first = [&run](std::uint64_t kind) {
    return run.law.closes_at_first(kind, run.neighbours);
  };
  EXPECT_TRUE(at_first(run.fingerprint)) << "nothing is known of it";
  run.run(Program{}, 20);
  EXPECT_TRUE(at_first(run.fingerprint));
  run.run(Program{}, 80);
  EXPECT_FALSE(at_first(run.fingerprint)) << "something is tried";
  search(run, Program{});
  ASSERT_NE(run.status().level, 0U);
  EXPECT_FALSE(at_first(run.fingerprint));
  EXPECT_TRUE(at_first(run.fingerprint + 1));
  EXPECT_TRUE(run.law.closes_at_first(run.fingerprint, run.neighbours + 1));
}

// Jobs that never end, that take no time, and a clock that jumps.
TEST(CloseLaw, BearsWhatCannotBe) {
  std::mt19937_64 random(13);
  for (const std::uint64_t most : {std::uint64_t{0}, std::uint64_t{1}, ~std::uint64_t{0}}) {
    CloseLaw law;
    for (int i = 0; i < 50'000; ++i) {
      const auto decision = law.decide(random() % 3, 1 + random() % 2, random());
      if (random() % 4 == 0) continue;
      const auto any = [&] { return most == 0 ? 0 : random() % most; };
      CloseLaw::Job job{any(), any(), any(), any(), true, 1};
      if (decision.when == When::kFirst) job.closed_ns = 0;
      law.ended(decision, job);
    }
    for (std::uint64_t fingerprint = 0; fingerprint < 3; ++fingerprint) {
      EXPECT_LE(law.status(fingerprint, 1).level, CloseLaw::kNeverLevel);
    }
  }
  // Half of the jobs of a program never end.
  Together run(14);
  Program eager;
  for (int i = 0; i < 12'000; ++i) {
    if (random() % 2 == 0) (void)run.law.decide(run.fingerprint, run.neighbours, run.now);
    run.run(eager, 1);
  }
  EXPECT_EQ(run.status().state, State::kClosesLater);
}

// A job whose gates were closed already when it began is no trial, and one whose gates were not is
// no reference.
TEST(CloseLaw, OnlyWhatWasAskedForIsEvidence) {
  for (const bool closed : {false, true}) {
    CloseLaw law;
    for (int i = 0; i < 3000; ++i) {
      const auto decision = law.decide(1, 1, 1);
      CloseLaw::Job job{10, 1000, 100, 0, true, 1};
      if (law.status(1, 1).level != 0 && !closed) job.closed_ns = 500;
      law.ended(decision, job);
    }
    EXPECT_EQ(law.status(1, 1).pairs, 0U);
  }
}

}  // namespace
}  // namespace sluice::intercept
