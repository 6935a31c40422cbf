// Tasks that are all alike teach a network nothing of a new device: a choice must cover all kinds.
#include "predictor/math/sampling.hpp"

#include <gmock/gmock.h>

#include <random>
#include <set>

namespace sluice::predictor {
namespace {

/// Three blobs of 30, 20 and 10 points around (0, 0), (10, 0) and (0, 10).
std::vector<Point> blobs() {
  std::mt19937_64 random(5);
  std::normal_distribution<double> noise(0, 0.5);
  std::vector<Point> points;
  for (int i = 0; i < 60; ++i) {
    const double x = i >= 30 && i < 50 ? 10 : 0;
    const double y = i >= 50 ? 10 : 0;
    points.push_back({x + noise(random), y + noise(random)});
  }
  return points;
}

int blob_of(std::size_t point) { return point < 30 ? 0 : point < 50 ? 1 : 2; }

TEST(KMeans, FindsThreeBlobs) {
  const auto points = blobs();
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const Clusters clusters = k_means(points, 3, seed);
    std::set<std::pair<int, std::size_t>> pairs;
    for (std::size_t i = 0; i < points.size(); ++i) pairs.insert({blob_of(i), clusters.of[i]});
    EXPECT_EQ(pairs.size(), 3U) << "seed " << seed;
  }
}

TEST(ChooseCentral, TakesOneOfEachBlobLargestFirst) {
  const auto points = blobs();
  const auto chosen = choose_central(points, 3, 1);
  ASSERT_EQ(chosen.size(), 3U);
  EXPECT_EQ(blob_of(chosen[0]), 0);
  EXPECT_EQ(blob_of(chosen[1]), 1);
  EXPECT_EQ(blob_of(chosen[2]), 2);
  // The nearest to the centre, not any.
  const Clusters clusters = k_means(points, 3, 1);
  const Point& centre = clusters.centres[clusters.of[chosen[0]]];
  const auto distance = [&](std::size_t i) {
    return std::hypot(points[i][0] - centre[0], points[i][1] - centre[1]);
  };
  for (std::size_t i = 0; i < 30; ++i) EXPECT_LE(distance(chosen[0]), distance(i) + 1e-12);
}

TEST(ChooseCentral, ChoosesNoPointTwice) {
  const std::vector<Point> equal(6, Point{1, 1});
  const auto chosen = choose_central(equal, 4, 0);
  EXPECT_EQ(std::set(chosen.begin(), chosen.end()).size(), 4U);
  EXPECT_EQ(choose_central(equal, 10, 0).size(), 6U);
}

TEST(ChooseRandom, FollowsTheSeed) {
  EXPECT_EQ(choose_random(100, 10, 7), choose_random(100, 10, 7));
  EXPECT_NE(choose_random(100, 10, 7), choose_random(100, 10, 8));
  EXPECT_EQ(choose_random(3, 10, 7).size(), 3U);
}

TEST(MomentDiscrepancy, IsZeroForTheSameSample) {
  EXPECT_DOUBLE_EQ(moment_discrepancy(blobs(), blobs()), 0);
  EXPECT_DOUBLE_EQ(moment_discrepancy(blobs(), {}), 0);
}

TEST(MomentDiscrepancy, OfAShiftIsTheShift) {
  std::vector<Point> a{{0.0, 0.2}, {0.4, 0.2}, {0.2, 0.2}};
  std::vector<Point> b = a;
  for (Point& point : b) point[1] += 0.3;
  EXPECT_NEAR(moment_discrepancy(a, b), 0.3, 1e-12);
}

// Same mean: only the higher moments differ. {0, 1} against {0.5, 0.5}: moments 2 and 4 are 1/4 and
// 1/16.
TEST(MomentDiscrepancy, SeesHigherMoments) {
  const std::vector<Point> wide{{0.0}, {1.0}};
  const std::vector<Point> narrow{{0.5}, {0.5}};
  EXPECT_NEAR(moment_discrepancy(wide, narrow), 0.25 + 0.0625, 1e-12);
}

}  // namespace
}  // namespace sluice::predictor
