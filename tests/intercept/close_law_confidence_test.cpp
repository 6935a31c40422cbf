// How often the law is wrong, and what it costs, over many programs and seeds.
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <optional>
#include <random>

#include "intercept/jobs/close_law.hpp"
#include "intercept/slot/bet.hpp"
#include "tests/intercept/close_programs.hpp"

namespace sluice::intercept {
namespace {

using test::chance;
using test::Cost;
using test::Program;
using test::Together;
using test::When;
using State = CloseLaw::State;

Program drawn(std::mt19937_64& random) {
  const auto between = [&](double low, double high) {
    return std::exp(std::uniform_real_distribution<double>(std::log(low), std::log(high))(random));
  };
  Program program;
  program.launches = std::uint64_t(between(2, 2000));
  program.host = between(0.3, 50);
  program.gpu = program.host * between(0.03, 2);
  program.host_noise = between(0.01, 0.25);
  program.wait_noise = std::min(between(0.005, 0.05), program.host / 100);
  program.kernel = program.host * between(0.005, 0.3);
  program.share = std::min(1.0, between(0.2, 1.2));
  const auto kind = random() % 6;
  if (kind == 0) program.heavy = true;
  if (kind == 1) {
    program.rare = between(0.01, 0.2);
    program.rare_kernel = program.host * between(0.1, 3);
  }
  if (kind == 2) program.slower = between(0.001, 0.2);
  if (kind == 3) {
    program.other_shape = between(0.05, 0.6);
    program.other_gpu = program.gpu * between(0.2, 5);
  }
  return program;
}

// The law is for programs that nobody knows. Where it ends must be harmless, and best effort must
// get nearly what it could get at best.
TEST(CloseLaw, ProgramsDrawnAtRandom) {
  constexpr int kPrograms = 100;
  constexpr int kJobs = 20'000;
  constexpr int kEarly = 1600;
  std::mt19937_64 random(11);
  int harmful = 0;
  double harmed = 0;
  double early = 0;
  double got = 0;
  double best = 0;
  std::vector<double> searches;
  std::vector<double> regrets;
  for (int i = 0; i < kPrograms; ++i) {
    const Program program = drawn(random);
    std::array<std::optional<bool>, CloseLaw::kNeverLevel + 1> known;
    const auto harms = [&](unsigned level) {
      if (!known[level]) known[level] = test::cost_of_level(program, level).is_harmful();
      return *known[level];
    };
    Together run(random());
    std::optional<CloseLaw::Status> end;
    double first_share = 0;
    for (int job = 0; job < kJobs; ++job) {
      const double best_effort = run.run(program, 1).best_effort;
      if (job < kEarly) first_share += best_effort / program.host / kEarly;
      const auto status = run.status();
      if (harms(status.level)) harmed += 1.0 / kJobs / kPrograms;
      if (!end && status.state != State::kLearning) end = status;
    }
    if (!end) continue;  // where nothing can be shown, the search takes longer
    searches.push_back(double(end->jobs));
    if (harms(end->level)) ++harmful;
    const double most = test::best_possible(program) / program.host;
    const double share = run.run(program, 2000).share() / program.host;
    best += most / kPrograms;
    early += first_share / kPrograms;
    got += share / kPrograms;
    regrets.push_back(most - share);
  }
  printf("%zu of %d searches ended, after %.0f jobs (median; p90 %.0f); %d end where it harms\n",
         searches.size(), kPrograms, test::at(searches, 0.5), test::at(searches, 0.9), harmful);
  printf("%.1f %% of the first %d jobs at levels that harm\n", 100 * harmed, kJobs);
  printf(
      "best effort: %.3f of %.3f of the host's time, %.3f in the first %d jobs; regret: median "
      "%.3f, p90 %.3f\n",
      got, best, early, kEarly, test::at(regrets, 0.5), test::at(regrets, 0.9));
  EXPECT_GE(searches.size(), kPrograms * 0.97);
  EXPECT_LE(harmful, chance(kPrograms));
  EXPECT_LE(harmed, 0.08);
  EXPECT_GE(early, 0.6 * best) << "most programs do not run for longer";
  EXPECT_GE(got, 0.75 * best);
  EXPECT_LE(test::at(regrets, 0.5), 1.0 / 8);
  EXPECT_LE(test::at(regrets, 0.9), 2.0 / 8);
}

/// Jobs whose waits and costs are drawn by the test. Returns where the search ended.
unsigned end_of_search(const std::function<std::pair<double, double>()>& reference_and_cost,
                       CloseLaw::Allowed allowed) {
  CloseLaw law(allowed);
  for (int i = 0; i < 60'000; ++i) {
    const auto decision = law.decide(1, 1, 1);
    const bool closed = decision.when == When::kFirst;
    const auto [wait, cost] = reference_and_cost();
    CloseLaw::Job job;
    job.waited_ns = std::uint64_t(wait + (closed ? 0 : cost));
    job.duration_ns = 5'000'000;
    job.launches = 1000;
    job.closed_ns = closed ? 0 : 1000;
    job.neighbour_busy = true;
    job.neighbours = 1;
    law.ended(decision, job);
    if (law.status(1, 1).state != State::kLearning) break;
  }
  return law.status(1, 1).level;
}

// The stated confidence, where it is hardest: each level costs exactly what is not allowed any
// more.
TEST(CloseLaw, AcceptsWhatIsNotHarmlessInOneSearchOfAHundred) {
  constexpr int kSeeds = 600;
  int accepted = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> wait(0, 300'000);
    const auto draw = [&] { return std::pair(wait(random), 100'000.0); };
    if (end_of_search(draw, {20, 1000}) != 0) ++accepted;
  }
  printf("median: %d of %d searches accept\n", accepted, kSeeds);
  EXPECT_LE(accepted, kSeeds / 100);
}

TEST(CloseLaw, AcceptsATailThatIsNotHarmlessInOneSearchOfAHundred) {
  constexpr int kSeeds = 60;
  int accepted = 0;
  for (int seed = 0; seed < kSeeds; ++seed) {
    std::mt19937_64 random(seed);
    std::uniform_real_distribution<double> wait(0, 30'000);
    std::bernoulli_distribution late(CloseLaw::kMoreLate * 1.02);
    const auto draw = [&] { return std::pair(wait(random), late(random) ? 1e7 : 0.0); };
    if (end_of_search(draw, {20, 0}) != 0) ++accepted;
  }
  printf("tail: %d of %d searches accept\n", accepted, kSeeds);
  EXPECT_LE(accepted, chance(kSeeds));
}

// What all of it rests on: whoever bets on fair samples gets rich as rarely as the wealth says,
// however often the wealth is looked at.
TEST(Bet, FairSamplesMakeNobodyRich) {
  constexpr int kBets = 20'000;
  for (const double rate : {0.5, 0.05}) {  // of samples that are positive
    int rich = 0;
    std::mt19937_64 random(1);
    std::bernoulli_distribution positive(rate);
    for (int i = 0; i < kBets; ++i) {
      Bet bet;
      double most = 0;
      for (int sample = 0; sample < 1000; ++sample) {
        bet.add(rate == 0.5 ? (positive(random) ? 1 : -1) : double(positive(random)) - rate);
        most = std::max(most, bet.wealth());
      }
      if (most >= CloseLaw::kSure) ++rich;
    }
    printf("rate %.2f: %d of %d\n", rate, rich, kBets);
    EXPECT_LE(rich, kBets / CloseLaw::kSure);
    EXPECT_GT(rich, 0);
  }
}

}  // namespace
}  // namespace sluice::intercept
