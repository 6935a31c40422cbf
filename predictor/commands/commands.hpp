#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "predictor/data/dataset.hpp"
#include "predictor/math/metrics.hpp"
#include "predictor/model/model.hpp"
#include "predictor/options.hpp"

/// The actions of `sluice predict`, and what they share.
namespace sluice::predictor {

void make_dataset_command(const Options& options);
void train_command(const Options& options);
void run_command(const Options& options);
void analyze_command(const Options& options);
void replay_command(const Options& options);
void search_command(const Options& options);
void rank_command(const Options& options);

/// A data set and the line of devices.csv of each of its devices.
struct Loaded {
  Dataset data;
  std::vector<DeviceInfo> devices;
};
/// The data set of -i: its folder, or packs and records; without -i the installed one.
[[nodiscard]] Loaded load(const Options& options);
/// Where the installed predictor is, with the data set that tests it.
[[nodiscard]] std::filesystem::path installed_folder();
[[nodiscard]] std::filesystem::path devices_file(const Options& options);
/// --cache_dir, or else predictor-cache if a predictor is there, or else the installed folder.
[[nodiscard]] std::filesystem::path predictor_folder(const Options& options);
/// --out, or else --cache_dir, or else predictor-cache.
[[nodiscard]] std::filesystem::path results_folder(const Options& options);

[[nodiscard]] std::unique_ptr<LatencyModel> load_predictor(const Options& options);
/// The line of devices.csv of --device-name. Throws base::UsageError.
[[nodiscard]] DeviceInfo device_asked_for(const Options& options);
/// Seconds of each program on `device`, which `data` may know by labels of other devices only. NaN:
/// the model has no way to predict it.
[[nodiscard]] std::vector<double> predict_on(const DeviceInfo& device, const LatencyModel& model,
                                             Dataset data);
/// The labels that train, tune and test by --mode and --finetune_tasks.
[[nodiscard]] Fold fold_of(const Dataset& data, const Options& options);
/// The labels that test a loaded predictor. Without --mode these are the labels that tested in its
/// training, and `options` gets the split of the training. If that split does not fit the data,
/// all labels test, and a warning says so.
[[nodiscard]] std::vector<Label> test_labels(const Dataset& data, Options& options);

/// Metrics of a model, for a line of metrics.csv.
struct Outcome {
  std::string model{};
  Metrics metrics{};
  double train_s = 0;
  std::size_t unpredicted = 0;  ///< Labels of the test for which the model has no prediction.
};

/// Predicts `test` and measures the result. Writes predictions.csv into `folder`.
[[nodiscard]] Outcome evaluate(const std::string& name, const LatencyModel& model,
                               const Loaded& loaded, std::span<const Label> test,
                               const std::filesystem::path& folder);

/// Adds a line to `folder`/metrics.csv and prints it.
void report(const Outcome& outcome, const Options& options, const std::filesystem::path& folder);

/// How often networks call each task.
[[nodiscard]] std::vector<double> task_weights(const Dataset& data);

}  // namespace sluice::predictor
