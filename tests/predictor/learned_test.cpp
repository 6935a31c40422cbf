// A network that cannot learn what it has seen, or that learns from what it must not see, gives
// figures that mean nothing.
#include "predictor/train/learned.hpp"

#include <gmock/gmock.h>

#include <chrono>
#include <fstream>
#include <random>

#include "base/error.hpp"
#include "synthetic.hpp"
#include "tests/support/temp_folder.hpp"

namespace sluice::predictor {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

Config quick() {
  Config config;
  config.layers = 1;
  config.feed_forward = 128;
  config.flatten = 64;
  config.embedding = {64};
  config.embedding_width = 32;
  config.decoder = {64};
  config.batch = 32;
  config.epochs = 150;
  config.lr = 2e-3;
  return config;
}

TrainOptions options_of(std::uint64_t seed = 1) {
  return {.seed = seed, .device = "cpu", .limit_s = 0, .probe = {}, .on_epoch = {}};
}

struct Halves {
  std::vector<Label> train;
  std::vector<Label> test;
};

Halves halves(const std::vector<Label>& labels) {
  Halves found;
  for (const Label& label : labels) {
    (label.query.program % 4 == 0 ? found.test : found.train).push_back(label);
  }
  return found;
}

Lesson lesson_of(const test::Synthetic& made, const std::vector<Label>& train,
                 const std::vector<Label>& tune = {}, const std::vector<Query>& unlabelled = {}) {
  return {made.data, made.devices, train, tune, unlabelled};
}

/// Trains on three quarters of the programs; the error on the rest, over that of their mean time.
double error_over_that_of_the_mean(const Config& config, const test::Synthetic& made) {
  const Halves half = halves(made.on(0));
  const auto model = make_learned(config, options_of());
  model->fit(lesson_of(made, half.train));
  const auto mean = make_mean();
  mean->fit(lesson_of(made, half.train));
  return test::error_of(*model, made, half.test) / test::error_of(*mean, made, half.test);
}

std::vector<double> predictions(const LatencyModel& model, const test::Synthetic& made) {
  return model.predict(made.data, made.devices, queries_of(made.on(0)));
}

class Kinds : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(All, Kinds, testing::Values("transformer", "mlp", "lstm"));

TEST_P(Kinds, Overfits64Programs) {
  const auto made = test::synthetic(8, 8, 1);
  const auto labels = made.on(0);
  Config config = quick();
  config.network = GetParam();
  config.epochs = 300;  // after 150, whether the LSTM is below the bound depends on the processor
  const auto begin = std::chrono::steady_clock::now();
  const auto model = make_learned(config, options_of());
  model->fit(lesson_of(made, labels));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  EXPECT_LT(test::error_of(*model, made, labels), 0.08);
  EXPECT_LT(taken.count(), 60) << "10 s on an idle machine";
}

TEST_P(Kinds, PredictsProgramsThatItHasNotSeen) {
  const auto made = test::synthetic(20, 20, 2);
  Config config = quick();
  config.network = GetParam();
  config.epochs = 60;
  EXPECT_LT(error_over_that_of_the_mean(config, made), 0.4);
}

// The control: with shuffled times there is nothing to learn, so nothing may be learned of the
// test.
TEST(Learned, WithShuffledTimesItStaysAtChance) {
  auto made = test::synthetic(20, 20, 2);
  std::mt19937_64 random(9);
  std::vector<double> seconds;
  for (const Label& label : made.data.labels) seconds.push_back(label.seconds);
  std::ranges::shuffle(seconds, random);
  for (std::size_t i = 0; i < seconds.size(); ++i) made.data.labels[i].seconds = seconds[i];
  Config config = quick();
  config.epochs = 40;
  EXPECT_GT(error_over_that_of_the_mean(config, made), 0.8);
}

TEST(Learned, SavedAndLoadedItPredictsTheSameBits) {
  const auto made = test::synthetic(6, 8, 3);
  Config config = quick();
  config.epochs = 5;
  const auto model = make_learned(config, options_of());
  model->fit(lesson_of(made, made.on(0)));
  const test::TempFolder folder;
  model->save(folder.path(), {{"mode", "h200"}});
  const auto loaded = load_learned(folder.path(), options_of());
  EXPECT_EQ(predictions(*loaded, made), predictions(*model, made));

  // A disk that is full, for instance: the one before is still there.
  config.epochs = 1;
  const auto other = make_learned(config, options_of(9));
  other->fit(lesson_of(made, made.on(0)));
  std::filesystem::create_directory(folder.file("predictor.json.part"));
  EXPECT_THROW(other->save(folder.path(), {}), base::RunError);
  EXPECT_EQ(predictions(*load_learned(folder.path(), options_of()), made),
            predictions(*model, made));
}

TEST(Learned, TheSameSeedGivesTheSamePredictions) {
  const auto made = test::synthetic(6, 8, 3);
  Config config = quick();
  config.epochs = 3;
  const auto trained = [&](std::uint64_t seed) {
    const auto model = make_learned(config, options_of(seed));
    model->fit(lesson_of(made, made.on(0)));
    return predictions(*model, made);
  };
  EXPECT_EQ(trained(4), trained(4));
  EXPECT_NE(trained(4), trained(5));
}

// Without a weight the discrepancy must not even draw random numbers.
TEST(Learned, ADiscrepancyOfWeightZeroIsOff) {
  const auto made = test::synthetic(6, 8, 3);
  const auto unlabelled = queries_of(made.on(1));
  Config config = quick();
  config.epochs = 3;
  const auto trained = [&](double weight, const std::vector<Query>& queries) {
    config.cmd = weight;
    const auto model = make_learned(config, options_of());
    model->fit(lesson_of(made, made.on(0), {}, queries));
    return predictions(*model, made);
  };
  EXPECT_EQ(trained(0, unlabelled), trained(0, {}));
  EXPECT_NE(trained(1, unlabelled), trained(0, unlabelled));
}

TEST(Learned, TheSinusoidCanBeTurnedOff) {
  const auto made = test::synthetic(6, 8, 3);
  Config config = quick();
  config.epochs = 2;
  const auto trained = [&](bool positions) {
    config.positions = positions;
    const auto model = make_learned(config, options_of());
    model->fit(lesson_of(made, made.on(0)));
    return predictions(*model, made);
  };
  EXPECT_NE(trained(true), trained(false));
}

// The small device takes three times as long. A few of its labels must be enough to learn that.
TEST(Learned, FewLabelsOfAnotherDeviceAreEnough) {
  const auto made = test::synthetic(20, 20, 2);
  const auto source = made.on(0);
  std::vector<Label> tune = made.on(1);
  std::vector<Label> test(tune.begin() + 60, tune.end());
  tune.resize(60);
  Config config = quick();
  config.epochs = 40;
  config.tune_epochs = 40;
  const auto model = make_learned(config, options_of());
  model->fit(lesson_of(made, source, tune));
  EXPECT_LT(test::error_of(*model, made, test), 0.3) << "0.67 without them";
  EXPECT_LT(test::error_of(*model, made, source), 0.3) << "and the first device is not forgotten";
}

TEST(Learned, ALoadedPredictorIsTunedFurther) {
  const auto made = test::synthetic(10, 10, 2);
  Config config = quick();
  config.epochs = 40;
  config.tune_epochs = 60;
  const auto model = make_learned(config, options_of());
  model->fit(lesson_of(made, made.on(0)));
  const test::TempFolder folder;
  model->save(folder.path(), {});
  const auto loaded = load_learned(folder.path(), options_of());
  const auto target = made.on(1);
  const double before = test::error_of(*loaded, made, target);
  loaded->tune(lesson_of(made, {}, target));
  EXPECT_LT(test::error_of(*loaded, made, target), 0.5 * before);
}

TEST(Learned, ALimitEndsTheTraining) {
  const auto made = test::synthetic(20, 20, 2);
  Config config = quick();
  config.epochs = 100000;
  TrainOptions options = options_of();
  options.limit_s = 0.5;
  std::size_t epochs = 0;
  options.on_epoch = [&](const EpochLine&) { ++epochs; };
  const auto model = make_learned(config, options);
  model->fit(lesson_of(made, made.on(0)));
  EXPECT_GT(epochs, 0U);
  EXPECT_LT(epochs, 10000U);
}

TEST(Learned, TheTestIsProbedAboutTwentyTimes) {
  const auto made = test::synthetic(4, 8, 2);
  Config config = quick();
  config.epochs = 100;
  TrainOptions options = options_of();
  int probes = 0;
  options.probe = [&](const LatencyModel&) { return ++probes; };
  double last = 0;
  options.on_epoch = [&](const EpochLine& line) { last = line.mape; };
  make_learned(config, options)->fit(lesson_of(made, made.on(0)));
  EXPECT_EQ(probes, 20);
  EXPECT_EQ(last, 20);
}

TEST(Learned, AProgramWithTooManyLeavesIsRefused) {
  auto made = test::synthetic(4, 8, 2);
  Config config = quick();
  config.epochs = 1;
  const auto model = make_learned(config, options_of());
  model->fit(lesson_of(made, made.on(0)));
  made.data.programs[0].leaves.resize(6);
  made.data.programs[0].positions.resize(6);
  EXPECT_THAT(
      [&] { (void)predictions(*model, made); },
      ThrowsMessage<base::RunError>(HasSubstr("has 6 leaves, the predictor has room for 5")));
}

TEST(Learned, ADamagedPredictorIsRefused) {
  const auto made = test::synthetic(4, 8, 2);
  Config config = quick();
  config.epochs = 1;
  const auto model = make_learned(config, options_of());
  model->fit(lesson_of(made, made.on(0)));
  const test::TempFolder folder;
  model->save(folder.path(), {});
  EXPECT_THAT([&] { (void)load_learned(folder.path() / "x", options_of()); },
              ThrowsMessage<base::UsageError>(HasSubstr("there is no predictor in")));
  std::ofstream(folder.path() / "predictor.pt") << "not a predictor";
  EXPECT_THAT([&] { (void)load_learned(folder.path(), options_of()); },
              ThrowsMessage<base::UsageError>(HasSubstr("is damaged")));
  std::ofstream(folder.path() / "predictor.json") << "{\"version\": 7}";
  EXPECT_THAT([&] { (void)load_learned(folder.path(), options_of()); },
              ThrowsMessage<base::UsageError>(HasSubstr("no predictor of this version")));
}

}  // namespace
}  // namespace sluice::predictor
