// A baseline that is worse than it could be makes the network look better than it is.
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "predictor/baselines/model.hpp"
#include "profiler/tuner/trees.hpp"
#include "synthetic.hpp"

namespace sluice::predictor {
namespace {

Lesson lesson_of(const test::Synthetic& made, const std::vector<Label>& train,
                 const std::vector<Label>& tune = {}) {
  return {made.data, made.devices, train, tune, {}};
}

TEST(Baselines, TheMeanIsGeometric) {
  auto made = test::synthetic(1, 2, 1);
  const std::vector<Label> train{{{0, 0}, 1e-5}, {{1, 0}, 1e-3}};
  const auto model = make_mean();
  model->fit(lesson_of(made, train));
  EXPECT_NEAR(model->predict(made.data, made.devices, queries_of(train))[0], 1e-4, 1e-12);
}

// Memory-bound: 1.024e9 bytes at 4096 GB/s are 250 us; compute-bound: 6e11 flop at 60 TFLOPS are 10
// ms.
TEST(Baselines, TheRooflineTakesTheLargerOfBoth) {
  auto made = test::synthetic(2, 1, 1);
  made.data.tasks[0].flop = 1;
  made.data.tasks[0].bytes = 1.024e9;
  made.data.tasks[1].flop = 6e11;
  made.data.tasks[1].bytes = 1;
  const std::vector<Label> train{{{0, 0}, 2 * 251e-6}};
  const auto model = make_roofline();
  model->fit(lesson_of(made, train));
  const std::vector<Query> queries{{0, 0}, {1, 0}, {1, 1}};
  const auto predicted = model->predict(made.data, made.devices, queries);
  EXPECT_NEAR(predicted[0], 2 * 251e-6, 1e-9);
  EXPECT_NEAR(predicted[1], 2 * 10.001e-3, 1e-7);
  EXPECT_NEAR(predicted[2], 2 * 30.001e-3, 1e-7) << "a device without labels has the factor of all";
}

TEST(Baselines, TheRooflineHasAFactorForEachDevice) {
  const auto made = test::synthetic(4, 10, 3);
  const auto model = make_roofline();
  std::vector<Label> half = made.on(1);
  half.resize(half.size() / 2);
  model->fit(lesson_of(made, made.on(0), half));
  const auto predicted = model->predict(made.data, made.devices, queries_of(half));
  std::size_t above = 0;
  for (std::size_t i = 0; i < half.size(); ++i) above += predicted[i] > half[i].seconds ? 1 : 0;
  EXPECT_NEAR(static_cast<double>(above) / static_cast<double>(half.size()), 0.5, 0.1);
}

TEST(Baselines, ACopiedLabelIsThatOfTheSameProgram) {
  const auto made = test::synthetic(4, 10, 3);
  const auto model = make_copied();
  model->fit(lesson_of(made, made.on(0)));
  EXPECT_NEAR(test::error_of(*model, made, made.on(1)), 2.0 / 3, 1e-9);
}

TEST(Baselines, WithoutALabelThereIsNoCopy) {
  const auto made = test::synthetic(4, 10, 3);
  std::vector<Label> train = made.on(0);
  train.erase(train.begin());
  const auto model = make_copied();
  model->fit(lesson_of(made, train));
  const auto predicted = model->predict(made.data, made.devices, queries_of(made.on(1)));
  EXPECT_TRUE(std::isnan(predicted[0]));
  EXPECT_FALSE(std::isnan(predicted[1]));
}

// The small device has a third of the peak, and the same bandwidth.
TEST(Baselines, ScalingFollowsWhatTheTaskWaitsFor) {
  auto made = test::synthetic(2, 1, 1);
  made.data.tasks[0].flop = 1;
  made.data.tasks[0].bytes = 1e9;
  made.data.tasks[1].flop = 6e14;
  made.data.tasks[1].bytes = 1e3;
  const auto model = make_scaling();
  const std::vector<Label> train{{{0, 0}, 1e-3}, {{1, 0}, 1e-3}};
  model->fit(lesson_of(made, train));
  const std::vector<Query> queries{{0, 1}, {1, 1}};
  const auto predicted = model->predict(made.data, made.devices, queries);
  EXPECT_NEAR(predicted[0], 1e-3, 1e-6);
  EXPECT_NEAR(predicted[1], 3e-3, 1e-5);
}

TEST(Baselines, XgboostLearnsWhatFollowsFromFeatures) {
  const auto made = test::synthetic(20, 20, 4);
  std::vector<Label> train = made.on(0);
  std::vector<Label> test;
  for (std::size_t i = 0; i < train.size(); i += 5) test.push_back(train[i]);
  std::erase_if(train, [&](const Label& label) { return label.query.program % 5 == 0; });
  if (!profiler::has_xgboost()) {
    EXPECT_THROW((void)make_xgboost(1), base::RunError);
    GTEST_SKIP() << "built without XGBoost";
  }
  const auto model = make_xgboost(1);
  model->fit(lesson_of(made, train));
  const auto mean = make_mean();
  mean->fit(lesson_of(made, train));
  EXPECT_LT(test::error_of(*model, made, test), 0.25);
  EXPECT_LT(test::error_of(*model, made, test), 0.3 * test::error_of(*mean, made, test));
}

// Tuned with a few tasks, the ratio must find more than the times of the other device say. The
// times of half of the tasks are three times as long there, those of the others equal.
TEST(Baselines, ARatioIsLearnedFromTheFeaturesOfTheTuningTasks) {
  if (!profiler::has_xgboost()) GTEST_SKIP() << "built without XGBoost";
  auto made = test::synthetic(40, 10, 4);
  for (Label& label : made.data.labels) {
    Program& program = made.data.programs[label.query.program];
    const bool slower = program.task % 2 == 0;
    for (Leaf& leaf : program.leaves) leaf[7] = slower ? 5.0F : 0.0F;
    if (label.query.device == 1 && !slower) label.seconds /= 3;
  }
  std::vector<Label> tune;
  std::vector<Label> test;
  for (const Label& label : made.on(1)) {
    (made.data.programs[label.query.program].task < 20 ? tune : test).push_back(label);
  }
  const auto model = make_ratio(1);
  model->fit(lesson_of(made, made.on(0)));
  EXPECT_NEAR(test::error_of(*model, made, test), 1.0 / 3, 1e-9) << "untuned, it is a copy";
  model->fit(lesson_of(made, made.on(0), tune));
  EXPECT_LT(test::error_of(*model, made, test), 0.05);
}

TEST(Baselines, ThereIsNoRatioToATimeThatIsNotKnown) {
  if (!profiler::has_xgboost()) GTEST_SKIP() << "built without XGBoost";
  const auto made = test::synthetic(4, 10, 3);
  std::vector<Label> train = made.on(0);
  train.erase(train.begin());
  const auto model = make_ratio(1);
  model->fit(lesson_of(made, train, made.on(1)));
  const auto predicted = model->predict(made.data, made.devices, queries_of(made.on(1)));
  EXPECT_TRUE(std::isnan(predicted[0]));
  EXPECT_NEAR(predicted[1], made.on(1)[1].seconds, 0.02 * made.on(1)[1].seconds);
}

}  // namespace
}  // namespace sluice::predictor
