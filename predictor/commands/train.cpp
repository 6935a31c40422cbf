#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <utility>

#include "base/error.hpp"
#include "predictor/commands/commands.hpp"
#include "predictor/train/learned.hpp"

namespace sluice::predictor {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::unique_ptr<LatencyModel> make_baseline(const std::string& name, std::uint64_t seed) {
  if (name == "mean") return make_mean();
  if (name == "roofline") return make_roofline();
  if (name == "copied") return make_copied();
  if (name == "scaling") return make_scaling();
  if (name == "ratio") return make_ratio(seed);
  return make_xgboost(seed);
}

/// loss.csv.
class LossFile {
 public:
  /// Replaces the file, so nothing that can still be refused may come after it.
  void begin(const fs::path& file) {
    out_.open(file);
    out_ << "phase,epoch,seconds,loss,test_mape\n";
  }
  void add(const EpochLine& line) {
    out_ << fmt::format("{},{},{:.3f},{:.6g},{}\n", line.phase, line.epoch, line.seconds, line.loss,
                        std::isnan(line.mape) ? "" : fmt::format("{:.6g}", line.mape))
         << std::flush;
  }

 private:
  std::ofstream out_;
};

TrainOptions train_options(const Options& options, const Loaded& loaded, const Fold& fold,
                           LossFile& losses) {
  const auto probe = [&loaded, &fold](const LatencyModel& model) {
    const auto predicted = model.predict(loaded.data, loaded.devices, queries_of(fold.test));
    double sum = 0;
    for (std::size_t i = 0; i < predicted.size(); ++i) {
      sum += relative_error(fold.test[i].seconds, predicted[i]);
    }
    return sum / static_cast<double>(predicted.size());
  };
  return {.seed = options.seed,
          .device = options.device,
          .threads = options.threads,
          .limit_s = options.limit_s,
          .probe = probe,
          .on_epoch = [&losses](const EpochLine& line) { losses.add(line); }};
}

ordered_json description(const Options& options, const Loaded& loaded, const Outcome& outcome) {
  ordered_json metrics;
  for (const auto& [name, value] : columns(outcome.metrics)) metrics[name] = value;
  return {{"mode", options.mode},
          {"seed", options.seed},
          {"finetune_tasks", options.finetune_tasks},
          {"sampling", options.sampling},
          {"devices", loaded.data.devices},
          {"trained_on", training_device(options.device)},
          {"train_s", outcome.train_s},
          {"metrics", std::move(metrics)}};
}

class Clock {
 public:
  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
  }

 private:
  std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

/// Where a model goes: the predictor that later commands load, and the results of its training.
struct Folders {
  fs::path predictor;
  fs::path results;
};

/// Without `model`, the model is a network.
Folders folders_of(const std::string& model, const Options& options) {
  Folders folders{options.cache_dir, results_folder(options)};
  if (options.models.size() > 1) {
    folders.predictor /= model;
    folders.results /= model;
  }
  if (!model.empty() && !is_network(model)) folders.predictor.clear();
  return folders;
}

/// Refuses to write results next to the predictor of another model, for whose they would be taken.
/// `folders.predictor` is empty for a model that cannot be saved.
void keep_apart(const std::string& model, const Folders& folders) {
  const fs::path& own = folders.predictor;
  if (!fs::exists(folders.results / "predictor.pt")) return;
  if (!own.empty() && fs::exists(own) && fs::equivalent(own, folders.results)) return;
  throw base::UsageError(folders.results.string() + " has a saved predictor, and the results of " +
                         model + " are not its own; give --out another folder");
}

/// A new network, or the saved one that the training goes on with. Without `name`, a new one is
/// that of the config.
std::unique_ptr<LearnedModel> start_network(const std::string& name, const Options& options,
                                            const TrainOptions& training, const Folders& folders) {
  if (options.finetune_cache_dir.empty() && !options.load_cache) {
    Config config = config_of(options);
    if (!name.empty()) config.network = name;
    return make_learned(config, training);
  }
  const fs::path folder =
      options.load_cache ? folders.predictor : fs::path(options.finetune_cache_dir);
  auto model = load_learned(folder, training);
  const std::string& saved = model->config().network;
  if (!name.empty() && name != saved) {
    throw base::UsageError("--model " + name + ": the predictor in " + folder.string() + " is " +
                           saved);
  }
  return model;
}

/// `train_s` is what the last line of loss.csv says: without the time of testing on the way.
Outcome train_network(const std::string& name, const Options& options, const Loaded& loaded,
                      const Fold& fold, const Lesson& lesson, const Folders& folders) {
  LossFile losses;
  double train_s = 0;
  TrainOptions training = train_options(options, loaded, fold, losses);
  const auto write = training.on_epoch;
  training.on_epoch = [&](const EpochLine& line) {
    train_s = line.seconds;
    write(line);
  };
  const auto model = start_network(name, options, training, folders);
  losses.begin(folders.results / "loss.csv");
  if (options.finetune_cache_dir.empty()) {
    model->fit(lesson);
  } else {
    model->tune(lesson);
  }
  Outcome outcome = evaluate(model->config().network, *model, loaded, fold.test, folders.results);
  outcome.train_s = train_s;
  model->save(folders.predictor, description(options, loaded, outcome));
  return outcome;
}

}  // namespace

void train_command(const Options& options) {
  // A mistake must not wait for the data, or for another model.
  const Config config = config_of(options);
  auto models = options.models;
  if (models.empty()) models.push_back("");  // the network of the config or of the saved predictor
  for (const std::string& name : models) {
    keep_apart(name.empty() ? config.network : name, folders_of(name, options));
  }
  const bool tuning = !options.finetune_cache_dir.empty();
  const Loaded loaded = load(
      options.finetune_datapath.empty() ? options.inputs[0] : options.finetune_datapath, options);
  Fold fold = fold_of(loaded.data, options);
  if (options.scratch) fold.train = std::exchange(fold.tune, {});
  // Without tasks to tune with, the training labels are those of the new data set.
  if (tuning && fold.tune.empty()) fold.tune = std::exchange(fold.train, {});
  const auto unlabelled = queries_of(fold.test);
  const Lesson lesson{loaded.data, loaded.devices, fold.train, fold.tune, unlabelled};
  fmt::print("{} labels train, {} tune, {} test; on {}\n", fold.train.size(), fold.tune.size(),
             fold.test.size(), training_device(options.device));
  for (const std::string& name : models) {
    const Folders folders = folders_of(name, options);
    fs::create_directories(folders.results);
    Outcome outcome;
    if (name.empty() || is_network(name)) {
      outcome = train_network(name, options, loaded, fold, lesson, folders);
    } else {
      const Clock clock;
      const auto model = make_baseline(name, options.seed);
      model->fit(lesson);
      const double train_s = clock.seconds();
      outcome = evaluate(name, *model, loaded, fold.test, folders.results);
      outcome.train_s = train_s;
    }
    report(outcome, options, results_folder(options));
  }
}

void run_command(const Options& options) {
  keep_apart("the loaded predictor", {options.cache_dir, results_folder(options)});
  const Loaded loaded = load(options.inputs[0], options);
  const auto model = load_predictor(options);
  Options used = options;
  const auto test = test_labels(loaded.data, used);
  const fs::path folder = results_folder(options);
  report(evaluate("loaded", *model, loaded, test, folder), used, folder);
}

}  // namespace sluice::predictor
