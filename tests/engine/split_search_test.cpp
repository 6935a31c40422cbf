#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "engine/split/search.hpp"

namespace sluice::engine {
namespace {

/// A model of made-up node times, whose every boundary costs something of its own.
class MadeUpModel {
 public:
  MadeUpModel(std::size_t nodes, std::uint64_t seed) : node_ms_(nodes), boundary_ms_(nodes) {
    std::mt19937_64 random(seed);
    for (double& ms : node_ms_) ms = 0.01 + static_cast<double>(random() % 1000) / 1000;
    total_ms_ = std::accumulate(node_ms_.begin(), node_ms_.end(), 0.0);
    for (double& ms : boundary_ms_) ms = total_ms_ * static_cast<double>(random() % 100) / 2500;
  }

  [[nodiscard]] std::vector<double> block_ms(const Cuts& cuts) {
    measured_.push_back(cuts);
    std::vector<double> ms;
    std::size_t from = 0;
    for (std::size_t i = 0; i <= cuts.size(); ++i) {
      const std::size_t to = i < cuts.size() ? cuts[i] : node_ms_.size();
      ms.push_back(from == 0 ? 0 : boundary_ms_[from]);
      for (; from < to; ++from) ms.back() += node_ms_[from];
    }
    return ms;
  }

  [[nodiscard]] SplitTimes times(const Cuts& cuts) { return {block_ms(cuts), total_ms_}; }

  [[nodiscard]] SearchSpace space(std::size_t blocks) const {
    SearchSpace space{.total_ms = total_ms_, .blocks = blocks};
    double prefix = 0;
    for (std::size_t node = 1; node < node_ms_.size(); ++node) {
      prefix += node_ms_[node - 1];
      space.nodes.push_back(node);
      space.prefix_ms.push_back(prefix);
    }
    return space;
  }

  /// The least cost of all candidates with one or two cuts.
  [[nodiscard]] double least_cost(std::size_t blocks) {
    double least = INFINITY;
    const auto consider = [&](const Cuts& cuts) {
      least = std::min(least, rate(cuts, block_ms(cuts), total_ms_).cost);
    };
    for (std::size_t a = 1; a < node_ms_.size(); ++a) {
      if (blocks == 2) consider({a});
      for (std::size_t b = a + 1; blocks == 3 && b < node_ms_.size(); ++b) consider({a, b});
    }
    return least;
  }

  [[nodiscard]] const std::vector<Cuts>& measured() const { return measured_; }

 private:
  std::vector<double> node_ms_;
  std::vector<double> boundary_ms_;
  std::vector<Cuts> measured_;
  double total_ms_ = 0;
};

bool go_on(const SplitSearch::Generation& /*generation*/) { return true; }

Candidate search(MadeUpModel& model, std::size_t blocks, const SearchOptions& options = {},
                 const SplitSearch::AfterGeneration& after = go_on) {
  SplitSearch search(model.space(blocks), options,
                     [&](const Cuts& cuts) { return model.times(cuts); });
  return search.run(after);
}

TEST(SplitSearch, CostIsThePublishedOne) {
  // 10 % overhead of two blocks; 5.2 and 5.8 deviate by 0.3 from their mean.
  const Candidate rated = rate({7}, {5.2, 5.8}, 10);
  EXPECT_NEAR(rated.overhead, 0.1, 1e-9);
  EXPECT_NEAR(rated.deviation_ms, 0.3, 1e-9);
  EXPECT_NEAR(rated.cost, std::exp(3 * (0.1 / 0.16 - 1)) + std::exp(0.3 / 0.3 - 1), 1e-9);
}

TEST(SplitSearch, GoodEnoughNeedsBothBounds) {
  EXPECT_TRUE(good_enough(rate({7}, {5.7, 5.8}, 10)));
  EXPECT_FALSE(good_enough(rate({7}, {5.9, 5.9}, 10)));
  EXPECT_FALSE(good_enough(rate({7}, {4.6, 5.4}, 10)));
}

TEST(SplitSearch, FindsWhatTryingEverythingFinds) {
  for (const std::size_t blocks : {2U, 3U}) {
    for (std::uint64_t seed = 1; seed <= 25; ++seed) {
      MadeUpModel model(90, seed);
      const double found = search(model, blocks).cost;
      EXPECT_LE(found, MadeUpModel(90, seed).least_cost(blocks) * 1.02) << blocks << " " << seed;
      // Or else it tried everything itself.
      EXPECT_LE(model.measured().size(), 600U);
    }
  }
}

TEST(SplitSearch, ABusyMachineChangesNothing) {
  // It makes a candidate and the uncut model that is measured with it slower alike.
  MadeUpModel idle(90, 6);
  MadeUpModel busy(90, 6);
  std::mt19937 random(1);
  SplitSearch search_busy(busy.space(3), {}, [&](const Cuts& cuts) {
    SplitTimes times = busy.times(cuts);
    const double slower = 1 + static_cast<double>(random() % 8);
    for (double& ms : times.ms) ms *= slower;
    times.whole_ms *= slower;
    return times;
  });
  const Candidate found = search_busy.run(go_on);
  const Candidate wanted = search(idle, 3);
  EXPECT_EQ(found.cuts, wanted.cuts);
  EXPECT_NEAR(found.overhead, wanted.overhead, 1e-9);
}

TEST(SplitSearch, MeasuresEachCandidateOnceAndOnlyValidOnes) {
  MadeUpModel model(40, 5);
  static_cast<void>(search(model, 5));
  auto measured = model.measured();
  for (const Cuts& cuts : measured) {
    EXPECT_EQ(cuts.size(), 4U);
    EXPECT_TRUE(std::ranges::is_sorted(cuts, std::less_equal{})) << testing::PrintToString(cuts);
    EXPECT_GE(cuts.front(), 1U);
    EXPECT_LE(cuts.back(), 39U);
  }
  std::ranges::sort(measured);
  EXPECT_EQ(std::ranges::adjacent_find(measured), measured.end());
}

TEST(SplitSearch, BeginsWithTheEvenSplitOfThePrefixTimes) {
  MadeUpModel model(90, 3);
  static_cast<void>(search(model, 4));
  const Cuts first = model.measured().front();
  const SearchSpace space = model.space(4);
  for (std::size_t i = 0; i < 3; ++i) {
    const double ideal = space.total_ms * static_cast<double>(i + 1) / 4;
    // No node takes longer than 1.01 ms.
    EXPECT_NEAR(space.prefix_ms[first[i] - 1], ideal, 0.505) << i;
  }
}

TEST(SplitSearch, TheSeedDecides) {
  MadeUpModel first(90, 4);
  MadeUpModel again(90, 4);
  MadeUpModel other(90, 4);
  static_cast<void>(search(first, 4, {.seed = 1}));
  static_cast<void>(search(again, 4, {.seed = 1}));
  static_cast<void>(search(other, 4, {.seed = 2}));
  EXPECT_EQ(first.measured(), again.measured());
  EXPECT_NE(first.measured(), other.measured());
}

TEST(SplitSearch, BestNeverGetsWorseAndAStallEndsTheSearch) {
  MadeUpModel model(90, 7);
  std::vector<double> costs;
  const SearchOptions few{.population = 6, .stall = 3};
  static_cast<void>(search(model, 4, few, [&](const SplitSearch::Generation& now) {
    EXPECT_EQ(now.step, costs.size());
    costs.push_back(now.best.cost);
    return true;
  }));
  EXPECT_TRUE(std::ranges::is_sorted(costs, std::greater{}));
  ASSERT_LT(costs.size(), 100U);
  // Better once, and then three times not.
  ASSERT_GE(costs.size(), 5U);
  EXPECT_EQ(costs[costs.size() - 1], costs[costs.size() - 4]);
  EXPECT_LT(costs[costs.size() - 4], costs[costs.size() - 5]);
}

TEST(SplitSearch, EndsWhenItIsToldTo) {
  MadeUpModel model(90, 7);
  int generations = 0;
  static_cast<void>(search(model, 3, {.generations = 3}, [&](const auto&) {
    ++generations;
    return true;
  }));
  EXPECT_EQ(generations, 3);
  static_cast<void>(search(model, 3, {}, [&](const auto&) {
    ++generations;
    return false;
  }));
  EXPECT_EQ(generations, 4);
}

TEST(SplitSearch, WithoutTimeLeftTheBestSoFarCounts) {
  MadeUpModel model(90, 8);
  SplitSearch search(model.space(3), {}, [&](const Cuts& cuts) {
    return model.measured().size() < 5 ? std::optional(model.times(cuts)) : std::nullopt;
  });
  const Candidate best = search.run(go_on);
  EXPECT_EQ(search.measured().size(), 5U);
  for (const auto& [cuts, candidate] : search.measured()) EXPECT_LE(best.cost, candidate.cost);

  SplitSearch without(model.space(3), {}, [](const Cuts&) { return std::nullopt; });
  EXPECT_THROW((void)without.run(go_on), std::runtime_error);
}

TEST(SplitSearch, AsManyBlocksAsThereAreNodes) {
  MadeUpModel model(6, 9);
  EXPECT_EQ(search(model, 6).cuts, (Cuts{1, 2, 3, 4, 5}));
}

// Where boundaries cost nothing, sums are the truth.
TEST(SplitBySums, TheBestCandidateIsTheEvenestWithoutAMeasurement) {
  MadeUpModel model(60, 3);
  SearchSpace space = model.space(3);
  const SummedCandidates found = best_by_sums(space, {}, 5);
  ASSERT_EQ(found.best.size(), 5U);
  EXPECT_GT(found.rated, 100U);
  EXPECT_TRUE(model.measured().empty());
  for (std::size_t i = 1; i < found.best.size(); ++i) {
    EXPECT_LE(found.best[i - 1].cost, found.best[i].cost);
  }
  double least_ms = INFINITY;
  const auto prefix = [&](std::size_t i) { return space.prefix_ms[i]; };
  for (std::size_t a = 0; a < space.nodes.size(); ++a) {
    for (std::size_t b = a + 1; b < space.nodes.size(); ++b) {
      const std::vector<double> ms{prefix(a), prefix(b) - prefix(a), space.total_ms - prefix(b)};
      least_ms = std::min(least_ms, rate({}, ms, space.total_ms).deviation_ms);
    }
  }
  EXPECT_LE(found.best[0].deviation_ms, 1.5 * least_ms + 1e-3 * space.total_ms);
  double whole = 0;
  for (const double ms : found.best[0].ms) whole += ms;
  EXPECT_NEAR(whole, space.total_ms, 1e-9) << "every node is in one block";
}

}  // namespace
}  // namespace sluice::engine
