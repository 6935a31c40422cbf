// Features in another order or range, or a sinusoid that is not the same for each program, teach
// the network noise.
#include "predictor/math/features.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::predictor {
namespace {

Dataset three_programs() {
  Dataset data;
  data.tasks = {{.id = "a"}, {.id = "b"}};
  for (int p = 0; p < 3; ++p) {
    Program program{.id = std::to_string(p),
                    .task = p == 2 ? 1UL : 0UL,
                    .index = p,
                    .leaves = {},
                    .positions = {4}};
    Leaf leaf{};
    leaf[0] = static_cast<float>(2 + 2 * p);  // 2, 4, 6
    leaf[1] = 7;
    program.leaves.push_back(leaf);
    data.programs.push_back(program);
  }
  return data;
}

TEST(FeatureScale, TrainingProgramsAreBetweenZeroAndOne) {
  const Dataset data = three_programs();
  const std::vector<Query> train{{0, 0}, {1, 0}};
  const FeatureScale scale(data, train);
  EXPECT_FLOAT_EQ(scale.apply(data.programs[0].leaves[0])[0], 0);
  EXPECT_FLOAT_EQ(scale.apply(data.programs[1].leaves[0])[0], 1);
  EXPECT_FLOAT_EQ(scale.apply(data.programs[2].leaves[0])[0], 2) << "beyond the training programs";
  EXPECT_FLOAT_EQ(scale.apply(data.programs[1].leaves[0])[1], 0) << "a feature that does not vary";
}

TEST(FeatureScale, AnOutlierIsBounded) {
  const Dataset data = three_programs();
  const std::vector<Query> train{{0, 0}, {1, 0}};
  const FeatureScale scale(data, train);
  Leaf leaf{};
  leaf[0] = 1000;
  EXPECT_FLOAT_EQ(scale.apply(leaf)[0], 2);
  leaf[0] = -1000;
  EXPECT_FLOAT_EQ(scale.apply(leaf)[0], -1);
}

TEST(Sinusoid, FollowsTheFormula) {
  const Leaf wave = sinusoid(7);
  EXPECT_NEAR(wave[0], std::sin(7.0), 1e-6);
  EXPECT_NEAR(wave[1], std::cos(7.0 / std::pow(10000.0, 1.0 / 176)), 1e-6);
  EXPECT_NEAR(wave[88], std::sin(7.0 / 100.0), 1e-6);
  EXPECT_NEAR(sinusoid(0)[2], 0, 1e-9);
  EXPECT_NEAR(sinusoid(0)[3], 1, 1e-9);
}

TEST(Encode, AddsThePositionOnlyIfAsked) {
  const Dataset data = three_programs();
  const std::vector<Query> train{{0, 0}, {1, 0}};
  const FeatureScale scale(data, train);
  const auto with = encode(data.programs[1], scale, true);
  const auto without = encode(data.programs[1], scale, false);
  EXPECT_NEAR(with[0][0] - without[0][0], std::sin(4.0), 1e-6);
  EXPECT_FLOAT_EQ(without[0][0], 1);
}

TEST(TaskMeans, AreOfTheProgramsOfEachTask) {
  const Dataset data = three_programs();
  const std::vector<Query> all{{0, 0}, {1, 0}, {2, 0}};
  const std::vector<std::size_t> tasks{1, 0};
  const auto means = task_means(data, FeatureScale(data, all), tasks);
  ASSERT_EQ(means.size(), 2U);
  EXPECT_NEAR(means[0][0], 1, 1e-6);
  EXPECT_NEAR(means[1][0], 0.25, 1e-6);
}

}  // namespace
}  // namespace sluice::predictor
