#include "profiler/tuner/annealing.hpp"

#include <algorithm>
#include <cmath>
#include <map>

namespace sluice::profiler {
namespace {

std::vector<std::uint64_t> starts(const ProgramSpace& space, std::size_t chains,
                                  const std::vector<Trial>& trials, Random& random) {
  std::vector<Trial> sorted = trials;
  std::ranges::sort(sorted, {}, &Trial::cost);
  std::vector<std::uint64_t> points;
  for (std::size_t i = 0; i < chains; ++i) {
    const bool good = i < chains / 2 && i < sorted.size();
    points.push_back(good ? sorted[i].index : random.below(space.size()));
  }
  return points;
}

}  // namespace

std::vector<std::uint64_t> anneal(const ProgramSpace& space, const Annealing& annealing,
                                  const RateOf& rate, const std::vector<Trial>& trials,
                                  const Unseen& unseen, Random& random, std::size_t count) {
  std::vector<std::uint64_t> points = starts(space, annealing.chains, trials, random);
  std::vector<float> scores = rate(points);
  std::map<std::uint64_t, float> best;
  const auto keep = [&](std::uint64_t index, float score) {
    if (std::isfinite(score) && unseen.is_new(index)) best.emplace(index, score);
  };
  for (std::size_t i = 0; i < points.size(); ++i) keep(points[i], scores[i]);
  for (int step = 0; step < annealing.steps; ++step) {
    const double heat = 1 - static_cast<double>(step) / annealing.steps;
    std::vector<std::uint64_t> next;
    for (const std::uint64_t point : points) {
      next.push_back(space.index(mutated(space, space.choice(point), random)));
    }
    const auto rated = rate(next);
    for (std::size_t i = 0; i < points.size(); ++i) {
      keep(next[i], rated[i]);
      const double better = static_cast<double>(rated[i]) - scores[i];
      if (better < 0 && random.real() >= std::exp(better / std::max(heat, 1e-5))) continue;
      points[i] = next[i];
      scores[i] = rated[i];
    }
  }
  std::vector<std::pair<float, std::uint64_t>> order;
  for (const auto& [index, score] : best) order.emplace_back(-score, index);
  std::ranges::sort(order);
  std::vector<std::uint64_t> chosen;
  for (std::size_t i = 0; i < std::min(count, order.size()); ++i) {
    chosen.push_back(order[i].second);
  }
  return chosen;
}

}  // namespace sluice::profiler
