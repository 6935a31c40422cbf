#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <random>

#include "base/error.hpp"
#include "predictor/commands/commands.hpp"
#include "predictor/data/mode.hpp"
#include "predictor/train/learned.hpp"

namespace sluice::predictor {
namespace {

namespace fs = std::filesystem;

/// Six settings at random; the others stay.
Config random_config(Config config, std::mt19937_64& random) {
  const auto one_of = [&random](std::initializer_list<std::int64_t> values) {
    std::uniform_int_distribution<std::size_t> any(0, values.size() - 1);
    return *(values.begin() + any(random));
  };
  const auto log_uniform = [&random](double low, double high) {
    std::uniform_real_distribution<double> exponent(std::log(low), std::log(high));
    return std::exp(exponent(random));
  };
  config.layers = one_of({1, 2, 3, 4, 6});
  config.feed_forward = one_of({128, 256, 512, 1024});
  config.flatten = one_of({64, 128, 256, 512});
  config.embedding.assign(static_cast<std::size_t>(one_of({1, 2, 3})), one_of({128, 256, 512}));
  config.lr = log_uniform(1e-4, 3e-3);
  config.batch = one_of({64, 128, 256, 512});
  return config;
}

/// The training labels of a fold, with every fifth task for choosing: the test stays unseen.
Fold inner_fold(const Dataset& data, const Fold& fold) {
  const auto groups = by_task(data, queries_of(fold.train));
  Fold inner;
  std::size_t number = 0;
  for (const auto& [task, labels] : groups) {
    for (const std::size_t i : labels) {
      (number % 5 == 2 ? inner.test : inner.train).push_back(fold.train[i]);
    }
    ++number;
  }
  if (inner.test.empty()) {
    throw base::UsageError("tune needs at least 3 tasks to train with");
  }
  return inner;
}

double value_of(const Metrics& metrics, const std::string& name) {
  for (const auto& [key, value] : columns(metrics)) {
    if (key == name) return value;
  }
  return std::numeric_limits<double>::quiet_NaN();
}

}  // namespace

void tune_command(const Options& options) {
  Config given = config_of(options);  // a mistake there must not empty trials.csv
  if (!options.models.empty()) given.network = options.models[0];
  const Loaded loaded = load(options.inputs[0], options);
  const Fold fold =
      inner_fold(loaded.data, make_fold(loaded.data, parse_mode(options.mode), options.seed));
  const auto unlabelled = queries_of(fold.test);
  const Lesson lesson{loaded.data, loaded.devices, fold.train, {}, unlabelled};
  const bool greater_is_better =
      options.metric == "r2" || options.metric == "pairs" || options.metric == "peak1";
  const fs::path folder = results_folder(options);
  fs::create_directories(folder);
  std::ofstream trials(folder / "trials.csv");
  trials << "trial," << options.metric << ",layers,feed_forward,flatten,embedding,lr,batch\n";
  std::mt19937_64 random(options.seed);
  TrainOptions training;
  training.seed = options.seed;
  training.device = options.device;
  training.threads = options.threads;
  training.limit_s = options.limit_s;
  double best = std::numeric_limits<double>::infinity();
  for (std::size_t trial = 0; trial < options.trials; ++trial) {
    const Config config = trial == 0 ? given : random_config(given, random);
    const auto model = make_learned(config, training);
    model->fit(lesson);
    const auto predicted = model->predict(loaded.data, loaded.devices, unlabelled);
    const double value = value_of(measure(loaded.data, fold.test, predicted), options.metric);
    trials << fmt::format("{},{:.6g},{},{},{},{}x{},{:.3g},{}\n", trial, value, config.layers,
                          config.feed_forward, config.flatten,
                          config.embedding.empty() ? 0 : config.embedding[0],
                          config.embedding.size(), config.lr, config.batch)
           << std::flush;
    const double cost = greater_is_better ? -value : value;
    fmt::print("trial {}: {} {:.4f}{}\n", trial, options.metric, value,
               cost < best ? ", best" : "");
    if (!(cost < best)) continue;
    best = cost;
    std::ofstream(folder / "tuned.json") << to_json(config).dump(1) << '\n';
  }
  fmt::print("written: {}; use it with train -c\n", (folder / "tuned.json").string());
}

}  // namespace sluice::predictor
