#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace sluice::predictor {

using Point = std::vector<double>;

/// Lloyd's algorithm from k-means++ centres, ended when no point changes its cluster.
struct Clusters {
  std::vector<Point> centres;
  std::vector<std::size_t> of;  ///< The cluster of each point.
};
[[nodiscard]] Clusters k_means(std::span<const Point> points, std::size_t count,
                               std::uint64_t seed);

/// Chooses `count` points that stand for all: the one next to the centre of each of `count`
/// clusters, largest cluster first. Fewer points than `count`: all.
[[nodiscard]] std::vector<std::size_t> choose_central(std::span<const Point> points,
                                                      std::size_t count, std::uint64_t seed);

/// Chooses `count` points at random, in the order of their numbers.
[[nodiscard]] std::vector<std::size_t> choose_random(std::size_t points, std::size_t count,
                                                     std::uint64_t seed);

/// Central moment discrepancy (Zellinger et al., 2017) of two samples of points in [0, 1]: the
/// distance of the means plus that of the central moments 2 to 5. 0 if an argument is empty.
[[nodiscard]] double moment_discrepancy(std::span<const Point> a, std::span<const Point> b);

}  // namespace sluice::predictor
