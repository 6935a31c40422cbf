#include "engine/split/search.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <set>

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
    ++measured_[cuts];
    std::vector<double> ms;
    std::size_t from = 0;
    for (std::size_t i = 0; i <= cuts.size(); ++i) {
      const std::size_t to = i < cuts.size() ? cuts[i] : node_ms_.size();
      ms.push_back(from == 0 ? 0 : boundary_ms_[from]);
      for (; from < to; ++from) ms.back() += node_ms_[from];
    }
    return ms;
  }

  [[nodiscard]] SearchSpace space(std::size_t blocks) const {
    SearchSpace space{.total_ms = total_ms_, .whole_ms = total_ms_, .blocks = blocks};
    double prefix = 0;
    for (std::size_t node = 1; node < node_ms_.size(); ++node) {
      prefix += node_ms_[node - 1];
      space.nodes.push_back(node);
      space.prefix_ms.push_back(prefix);
    }
    return space;
  }

  [[nodiscard]] double least_cost(std::size_t blocks) {
    double least = INFINITY;
    const auto visit = [&](const auto& self, Cuts cuts) -> void {
      if (cuts.size() + 1 == blocks) {
        least = std::min(least, rate(cuts, block_ms(cuts), total_ms_).cost);
        return;
      }
      for (std::size_t c = cuts.empty() ? 1 : cuts.back() + 1; c < node_ms_.size(); ++c) {
        Cuts more = cuts;
        more.push_back(c);
        self(self, more);
      }
    };
    visit(visit, {});
    return least;
  }

  std::map<Cuts, int> measured_;

 private:
  std::vector<double> node_ms_;
  std::vector<double> boundary_ms_;
  double total_ms_ = 0;
};

bool go_on(const SplitSearch::Generation&) { return true; }

Candidate found_in(MadeUpModel& model, std::size_t blocks, SearchOptions options = {}) {
  SplitSearch search(model.space(blocks), options,
                     [&](const Cuts& cuts) { return model.block_ms(cuts); });
  return search.run(go_on);
}

TEST(SplitSearch, FindsWhatTryingEverythingFinds) {
  for (const std::size_t blocks : {2U, 3U}) {
    double worst = 0;
    for (std::uint64_t seed = 1; seed <= 40; ++seed) {
      MadeUpModel model(90, seed);
      const double ratio = found_in(model, blocks).cost / MadeUpModel(90, seed).least_cost(blocks);
      worst=std::max(worst,ratio);
      printf("%zu %.3f n=%zu\n", blocks, ratio, model.measured_.size());
    }
    EXPECT_LE(worst, 1.02);
  }
}

}  // namespace
}  // namespace sluice::engine
