#include "predictor/math/sampling.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

namespace sluice::predictor {
namespace {

constexpr int kMoments = 5;
constexpr int kMostRounds = 100;

double squared_distance(const Point& a, const Point& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * (a[i] - b[i]);
  return sum;
}

std::size_t nearest(const std::vector<Point>& centres, const Point& point) {
  std::size_t best = 0;
  for (std::size_t c = 1; c < centres.size(); ++c) {
    if (squared_distance(centres[c], point) < squared_distance(centres[best], point)) best = c;
  }
  return best;
}

/// Arthur and Vassilvitskii, 2007: a centre is drawn with the square of its distance to the others.
std::vector<Point> first_centres(std::span<const Point> points, std::size_t count,
                                 std::mt19937_64& random) {
  std::uniform_int_distribution<std::size_t> any(0, points.size() - 1);
  std::vector<Point> centres{points[any(random)]};
  std::vector<double> distance(points.size());
  while (centres.size() < count) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      distance[i] = squared_distance(points[i], centres[nearest(centres, points[i])]);
    }
    if (std::accumulate(distance.begin(), distance.end(), 0.0) == 0) break;
    std::discrete_distribution<std::size_t> far(distance.begin(), distance.end());
    centres.push_back(points[far(random)]);
  }
  return centres;
}

void move_centres(std::span<const Point> points, Clusters& clusters) {
  std::vector<Point> sums(clusters.centres.size(), Point(points[0].size(), 0.0));
  std::vector<double> counts(sums.size(), 0);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const std::size_t c = clusters.of[i];
    counts[c] += 1;
    for (std::size_t f = 0; f < points[i].size(); ++f) sums[c][f] += points[i][f];
  }
  for (std::size_t c = 0; c < sums.size(); ++c) {
    if (counts[c] == 0) continue;  // keeps its place
    for (double& x : sums[c]) x /= counts[c];
    clusters.centres[c] = std::move(sums[c]);
  }
}

/// Mean and central moments 2 to 5 of each column.
std::vector<Point> column_moments(std::span<const Point> points) {
  const std::size_t columns = points[0].size();
  const double n = static_cast<double>(points.size());
  std::vector<Point> moments(kMoments, Point(columns, 0.0));
  for (std::size_t f = 0; f < columns; ++f) {
    for (const Point& point : points) moments[0][f] += point[f] / n;
    for (const Point& point : points) {
      double power = point[f] - moments[0][f];
      const double step = power;
      for (int k = 1; k < kMoments; ++k) moments[k][f] += (power *= step) / n;
    }
  }
  return moments;
}

}  // namespace

Clusters k_means(std::span<const Point> points, std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Clusters clusters;
  if (points.empty() || count == 0) return clusters;
  clusters.centres = first_centres(points, count, random);
  clusters.of.assign(points.size(), std::numeric_limits<std::size_t>::max());
  for (int round = 0; round < kMostRounds; ++round) {
    bool changed = false;
    for (std::size_t i = 0; i < points.size(); ++i) {
      const std::size_t c = nearest(clusters.centres, points[i]);
      changed |= c != clusters.of[i];
      clusters.of[i] = c;
    }
    if (!changed) break;
    move_centres(points, clusters);
  }
  return clusters;
}

std::vector<std::size_t> choose_central(std::span<const Point> points, std::size_t count,
                                        std::uint64_t seed) {
  count = std::min(count, points.size());
  const Clusters clusters = k_means(points, count, seed);
  std::vector<std::size_t> order(clusters.centres.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{},
                           [&](std::size_t c) { return std::ranges::count(clusters.of, c); });
  std::vector<bool> taken(points.size(), false);
  std::vector<std::size_t> chosen;
  // Equal points make fewer clusters than asked for: then a cluster gives more than one.
  while (chosen.size() < count) {
    for (const std::size_t c : order) {
      std::size_t best = points.size();
      for (std::size_t i = 0; i < points.size() && chosen.size() < count; ++i) {
        if (taken[i] || clusters.of[i] != c) continue;
        if (best == points.size() || squared_distance(points[i], clusters.centres[c]) <
                                         squared_distance(points[best], clusters.centres[c])) {
          best = i;
        }
      }
      if (best == points.size()) continue;
      taken[best] = true;
      chosen.push_back(best);
    }
  }
  return chosen;
}

std::vector<std::size_t> choose_random(std::size_t points, std::size_t count, std::uint64_t seed) {
  std::vector<std::size_t> all(points);
  std::iota(all.begin(), all.end(), std::size_t{0});
  std::vector<std::size_t> chosen;
  std::mt19937_64 random(seed);
  std::ranges::sample(all, std::back_inserter(chosen),
                      static_cast<std::ptrdiff_t>(std::min(count, points)), random);
  return chosen;
}

double moment_discrepancy(std::span<const Point> a, std::span<const Point> b) {
  if (a.empty() || b.empty()) return 0;
  const auto first = column_moments(a);
  const auto second = column_moments(b);
  double sum = 0;
  for (int k = 0; k < kMoments; ++k) sum += std::sqrt(squared_distance(first[k], second[k]));
  return sum;
}

}  // namespace sluice::predictor
