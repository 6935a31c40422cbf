// What the search costs a critical program next to neighbours that come and go, in virtual time.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "tests/intercept/close_programs.hpp"

namespace sluice::intercept {
namespace {

using test::a_critical_program;
using test::at;
using test::between;
using test::Machine;
using test::Program;
using test::Together;
using test::When;

enum class Harm { kMedian, kTail, kDuration, kPhases, kDrawn };

Program quiet_next_to(Program program) {
  program.share = 1;
  program.kernel = program.host * 0.002;
  return program;
}

/// A neighbour: what its work does to a job while the gates are open.
Program next_to(Program program, Harm harm, std::mt19937_64& random) {
  program = quiet_next_to(program);
  if (harm == Harm::kDrawn) harm = static_cast<Harm>(random() % 4);
  if (harm == Harm::kMedian || harm == Harm::kPhases) {
    program.share = between(random, 0.1, 0.4);
    program.kernel = program.host * between(random, 0.1, 0.6);
  } else if (harm == Harm::kTail) {
    program.rare = between(random, 0.03, 0.15);
    program.rare_kernel = program.host * between(random, 0.5, 3);
  } else {
    program.slower = between(random, 0.05, 0.4);
  }
  return program;
}

struct Cost {
  double longer = 0;     ///< The mean job, as a part, than with gates that close at first.
  double more_late = 0;  ///< Jobs beyond the p99 of those, by 5 %, on top of one in 100.
};

/// The law with a program, and the same program with gates that close at first.
class Compared {
 public:
  explicit Compared(std::uint64_t seed) : run(seed), other_(seed + 1) {}
  /// Returns what best effort got, as a part of the host's time.
  double job(const Program& program) {
    const auto sum = run.run(program, 1);
    took_.push_back(sum.durations[0]);
    closed_.push_back(other_.run(program, When::kFirst, 0, 0).duration);
    return sum.best_effort / program.host;
  }
  [[nodiscard]] Cost cost() const {
    const double late = at(closed_, 0.99) * 1.05;
    const auto is_late = [late](double each) { return each > late; };
    const auto more = std::count_if(took_.begin(), took_.end(), is_late) -
                      std::count_if(closed_.begin(), closed_.end(), is_late);
    const double sum = std::accumulate(took_.begin(), took_.end(), 0.0);
    const double closed = std::accumulate(closed_.begin(), closed_.end(), 0.0);
    return {sum / closed - 1, double(more) / double(took_.size())};
  }

  Together run;

 private:
  Machine other_;
  std::vector<double> took_, closed_;
};

/// Neighbours that nobody knows come one after the other, for 0.2 to 5 s each.
Cost cost_of_neighbours(Harm harm, std::uint64_t seed, double seconds) {
  std::mt19937_64 random(seed);
  const Program critical = a_critical_program(random);
  Compared both(seed);
  const auto end = both.run.now + std::uint64_t(seconds * 1e9);
  while (both.run.now < end) {
    ++both.run.neighbours;
    const Program program = next_to(critical, harm, random);
    const auto leaves = both.run.now + std::uint64_t(between(random, 0.2, 5) * 1e9);
    const int phase = 1 << random() % 8;  // jobs; in step with the pairs
    for (int job = 0; both.run.now < leaves; ++job) {
      const bool is_quiet = harm == Harm::kPhases && job / phase % 2 == 0;
      both.job(is_quiet ? quiet_next_to(critical) : program);
    }
  }
  return both.cost();
}

// Prevents: each neighbour has a search of its own, and the more of them come, the more jobs of the
// critical program are trials. Neighbours that harm at the median, in the tail, by what they take
// from the host, or in phases.
TEST(CloseLaw, NeighboursThatComeAndGoShareOneBudget) {
  for (const Harm harm :
       {Harm::kMedian, Harm::kTail, Harm::kDuration, Harm::kPhases, Harm::kDrawn}) {
    double worst = 0;
    double latest = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const Cost cost = cost_of_neighbours(harm, seed, 120);
      SCOPED_TRACE(testing::Message() << "harm " << int(harm) << ", seed " << seed);
      EXPECT_LE(cost.longer, 0.05);
      EXPECT_LE(cost.more_late, 0.015);
      worst = std::max(worst, cost.longer);
      latest = std::max(latest, cost.more_late);
    }
    printf("harm %d: %.1f %% longer, %.2f %% more late\n", int(harm), 100 * worst, 100 * latest);
  }
}

// Prevents: the budget takes from best effort what costs nothing.
TEST(CloseLaw, NeighboursThatDoNoHarmNeedNoBudget) {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    std::mt19937_64 random(seed);
    const Program program = quiet_next_to(a_critical_program(random));
    Compared both(seed);
    double late = 0;
    for (int neighbour = 0; neighbour < 400; ++neighbour) {
      ++both.run.neighbours;
      double got = 0;
      for (int job = 0; job < 200; ++job) got += both.job(program) / 200;
      if (neighbour >= 200) late += got / 200;
    }
    const double possible = test::best_possible(program) / program.host;
    EXPECT_GE(late, 0.5 * possible) << seed << ": of 200 jobs, 50 are before the answer";
    EXPECT_LE(both.cost().longer, 0.05) << seed;
  }
}

// A program has jobs of several kinds, next to one neighbour.
TEST(CloseLaw, EachKindOfJobsMayBeSearched) {
  constexpr std::uint64_t kKinds = TrialBudget::kKinds;
  Program program;  // never closing harms, and a later moment does not
  Compared both(3);
  for (std::uint64_t job = 0; job < 3000 * kKinds; ++job) {
    both.run.fingerprint = 1 + job % kKinds;
    both.job(program);
  }
  double got = 0;
  for (std::uint64_t job = 0; job < 100 * kKinds; ++job) {
    both.run.fingerprint = 1 + job % kKinds;
    got += both.job(program) / (100 * kKinds);
  }
  EXPECT_GE(got, 0.7 * test::best_possible(program) / program.host);
  EXPECT_LE(both.cost().longer, 0.05);
}

// Prevents: a program that makes new kinds of jobs without an end searches for each of them.
TEST(CloseLaw, KindsWithoutAnEndShareOneBudget) {
  std::mt19937_64 random(4);
  const Program program = next_to(a_critical_program(random), Harm::kMedian, random);
  Compared both(4);
  for (int job = 0; job < 100'000; ++job) {
    both.run.fingerprint = 1 + std::uint64_t(job / 100);
    both.job(program);
  }
  const double most = TrialBudget::kSearch * TrialBudget::kKinds + 100'000 * TrialBudget::kPerJob;
  EXPECT_LE(both.cost().more_late, 1.1 * most / 100'000);
}

// Prevents: a neighbour that is quiet until the gates stay open, and is not after that.
TEST(CloseLaw, ANeighbourInPhasesDoesNotPayWithProtection) {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    std::mt19937_64 random(seed);
    const Program critical = a_critical_program(random);
    const Program loud = next_to(critical, Harm::kMedian, random);
    const int quiet = int(between(random, 500, 12'000));
    const int phase = int(between(random, 50, 4000));
    Compared both(seed);
    for (int job = 0; job < 150'000; ++job)
      both.job(job % (quiet + phase) < quiet ? quiet_next_to(critical) : loud);
    const Cost cost = both.cost();
    printf("quiet for %d jobs, loud for %d: %.1f %% longer, %.2f %% more late\n", quiet, phase,
           100 * cost.longer, 100 * cost.more_late);
    EXPECT_LE(cost.longer, 0.05) << seed;
    EXPECT_LE(cost.more_late, 0.025) << seed;
  }
}

// Prevents: a level that was harmless for minutes has lost so many bets that it takes minutes more
// to doubt it. Each job waits for a tenth or more of its time longer; its tail hides that.
TEST(CloseLaw, ANeighbourThatGrowsLoudIsNoticedSoon) {
  for (std::uint64_t seed = 1; seed <= 24; ++seed) {
    std::mt19937_64 random(seed);
    Program quiet = quiet_next_to(a_critical_program(random));
    quiet.gpu = quiet.host * 0.5;
    quiet.heavy = true;
    quiet.wait_noise = quiet.host * 0.02;
    Program loud = quiet;
    loud.share = between(random, 0.1, 0.3);
    Compared before(seed);
    for (int job = 0; job < 20'000; ++job) before.job(quiet);
    const unsigned level = before.run.status().level;
    ASSERT_GE(level, 1U) << seed;
    Compared noticing(seed), after(seed);
    noticing.run = before.run;
    for (int job = 0; job < 250; ++job) noticing.job(loud);
    after.run = noticing.run;
    for (int job = 0; job < 750; ++job) after.job(loud);
    printf("level %u -> %u; %.2f longer at first, %.3f then\n", level, after.run.status().level,
           noticing.cost().longer, after.cost().longer);
    EXPECT_LE(noticing.cost().longer, 0.6) << seed;  // at most 330 % in each job before
    EXPECT_LE(after.cost().longer, 0.04) << seed;
  }
}

// Prevents: a job that does not end because of its open gates is no evidence, and so there is
// another one, and another one.
TEST(CloseLaw, TrialsThatShowNothingArePaidFor) {
  Together run(5);
  int open = 0;
  for (int job = 0; job < 50'000; ++job) {
    CloseLaw before = run.law;
    if (before.decide(run.fingerprint, run.neighbours, run.now).when != When::kFirst) {
      ++open;
      (void)run.law.decide(run.fingerprint, run.neighbours, run.now);
    } else {
      run.run(Program{}, 1);
    }
  }
  EXPECT_LE(open,
            TrialBudget::kSearch + TrialBudget::kMostOfTrial + 50'000 * TrialBudget::kPerJob + 2);
  EXPECT_GE(open, 50) << "it may end one day";
  EXPECT_TRUE(run.law.closes_at_first(run.fingerprint, run.neighbours)) << "255 of 256 jobs do";
  EXPECT_EQ(run.status().level, 0U);
}

// Prevents: a neighbour that is idle for long uses the budget up, although nobody was harmed.
TEST(CloseLaw, ANeighbourThatIsIdleIsTriedForNothing) {
  Together run(6);
  run.neighbour_busy = false;
  run.run(Program{}, 5000);
  EXPECT_EQ(run.status().pairs, 0U);
  run.neighbour_busy = true;
  run.run(Program{}, 400);
  EXPECT_GT(run.status().level, 0U);
  EXPECT_FALSE(run.law.closes_at_first(run.fingerprint, run.neighbours));
}

// Prevents: next to a neighbour that the budget has nothing for, jobs count as being searched, and
// are not predicted.
TEST(CloseLaw, WithoutABudgetGatesCloseAtFirst) {
  std::mt19937_64 random(7);
  Program program;
  program.share = 0.1;
  program.kernel = 2;
  Together run(7);
  for (int neighbour = 0; neighbour < 20; ++neighbour) {
    ++run.neighbours;
    run.run(program, 150);
  }
  ++run.neighbours;
  run.run(program, 60);
  EXPECT_EQ(run.status().state, CloseLaw::State::kClosesAtFirst);
  EXPECT_EQ(run.status().pairs, 0U);
}

// Prevents: neighbours that harmed once are believed of all that come later.
TEST(CloseLaw, ABudgetRecovers) {
  std::mt19937_64 random(9);
  const Program critical = a_critical_program(random);
  Compared both(9);
  for (int job = 0; job < 20'000; ++job) {
    if (job % 1000 == 0) ++both.run.neighbours;
    both.job(next_to(critical, Harm::kTail, random));
  }
  const Program quiet = quiet_next_to(critical);
  double got = 0;
  for (int job = 0; job < 80'000; ++job) {
    if (job % 400 == 0) ++both.run.neighbours;
    const double share = both.job(quiet);
    if (job >= 60'000) got += share / 20'000;
  }
  EXPECT_GE(got, 0.6 * test::best_possible(quiet) / quiet.host);
}

TEST(TrialBudget, IsNotSavedUp) {
  TrialBudget budget;
  for (int job = 0; job < 1'000'000; ++job) budget.job();
  int trials = 0;
  for (; budget.may_begin() && trials < 100; ++trials) budget.pay(TrialBudget::kTrial);
  EXPECT_EQ(trials, int(TrialBudget::kMost / TrialBudget::kTrial));
}

}  // namespace
}  // namespace sluice::intercept
