#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>

#include "base/error.hpp"
#include "base/install.hpp"
#include "predictor/commands/commands.hpp"
#include "predictor/data/dataset_file.hpp"
#include "predictor/data/make_dataset.hpp"

namespace sluice::predictor {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOwnFolder = "predictor-cache";

void write_predictions(const fs::path& file, const Dataset& data, std::span<const Label> labels,
                       std::span<const double> predicted) {
  std::ofstream out(file);
  out << "program,task,name,device,leaves,measured_s,predicted_s\n";
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const Program& program = data.programs[labels[i].query.program];
    const Task& task = data.tasks[program.task];
    out << fmt::format("{},{},{},{},{},{:.6g},{:.6g}\n", program.id, task.id, task.name,
                       data.devices[labels[i].query.device], program.leaves, labels[i].seconds,
                       predicted[i]);
  }
  if (!out.flush()) throw base::RunError("cannot write " + file.string());
}

}  // namespace

fs::path installed_folder() {
  return base::Install::of_this_program().root() / "share/sluice/predictor";
}

fs::path devices_file(const Options& options) {
  return options.devices_file.empty() ? installed_folder() / "devices.csv"
                                      : fs::path(options.devices_file);
}

fs::path predictor_folder(const Options& options) {
  if (!options.cache_dir.empty()) return options.cache_dir;
  const fs::path own = kOwnFolder;
  return fs::exists(own / "predictor.cbor") ? own : installed_folder();
}

fs::path results_folder(const Options& options) {
  if (!options.out.empty()) return options.out;
  return options.cache_dir.empty() ? fs::path(kOwnFolder) : fs::path(options.cache_dir);
}

Loaded load(const Options& options) {
  Loaded loaded;
  const auto& inputs = options.inputs;
  if (inputs.empty()) {
    loaded.data = load_dataset((installed_folder() / "dataset.cbor").string());
  } else if (inputs.size() == 1 && fs::exists(fs::path(inputs[0]) / "dataset.cbor")) {
    loaded.data = load_dataset((fs::path(inputs[0]) / "dataset.cbor").string());
  } else {
    Dropped ignored;
    loaded.data = make_dataset(inputs, true, ignored);
  }
  const auto known = read_devices(devices_file(options).string());
  for (const std::string& name : loaded.data.devices) {
    loaded.devices.push_back(device_info(known, name));
  }
  return loaded;
}

std::unique_ptr<LatencyModel> load_predictor(const Options& options) {
  const fs::path folder = predictor_folder(options);
  if (!fs::exists(folder / "predictor.cbor")) {
    std::vector<std::string> inside;
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (fs::exists(entry.path() / "predictor.cbor")) inside.push_back(entry.path().string());
    }
    std::ranges::sort(inside);
    if (!inside.empty()) {
      throw base::UsageError(fmt::format("there is no predictor in {}; choose one of {}",
                                         folder.string(), fmt::join(inside, ", ")));
    }
  }
  return load_model(folder);
}

DeviceInfo device_asked_for(const Options& options) {
  return device_info(read_devices(devices_file(options).string()), options.device_name);
}

std::vector<double> predict_on(const DeviceInfo& device, const LatencyModel& model, Dataset data) {
  std::vector<Query> queries;
  for (std::size_t p = 0; p < data.programs.size(); ++p)
    queries.push_back({p, data.devices.size()});
  data.devices.push_back(device.name);
  return model.predict(data, std::vector<DeviceInfo>(data.devices.size(), device), queries);
}

std::vector<double> task_weights(const Dataset& data) {
  std::vector<double> weights(data.tasks.size(), 0);
  for (const Network& network : data.networks) {
    for (const auto& call : network.calls) weights[call.task] += 1;
  }
  // Tasks of no network are operators of their own.
  for (double& weight : weights) weight = weight == 0 ? 1 : weight;
  return weights;
}

Outcome evaluate(const std::string& name, const LatencyModel& model, const Loaded& loaded,
                 std::span<const Label> test, const fs::path& folder) {
  const auto all = model.predict(loaded.data, loaded.devices, queries_of(test));
  Outcome outcome{.model = name};
  std::vector<Label> labels;
  std::vector<double> predicted;
  for (std::size_t i = 0; i < test.size(); ++i) {
    if (!std::isfinite(all[i])) {
      ++outcome.unpredicted;
      continue;
    }
    labels.push_back(test[i]);
    predicted.push_back(all[i]);
  }
  outcome.metrics = measure(loaded.data, labels, predicted, task_weights(loaded.data));
  fs::create_directories(folder);
  write_predictions(folder / "predictions.csv", loaded.data, labels, predicted);
  return outcome;
}

void report(const Outcome& outcome, const Options& options, const fs::path& folder) {
  fs::create_directories(folder);
  const fs::path file = folder / "metrics.csv";
  const bool fresh = !fs::exists(file) || fs::is_empty(file);
  std::ofstream out(file, std::ios::app);
  const auto metrics = columns(outcome.metrics);
  if (fresh) {
    out << "model,mode,seed,finetune_tasks,train_s,unpredicted";
    for (const auto& [name, value] : metrics) out << ',' << name;
    out << '\n';
  }
  out << fmt::format("{},\"{}\",{},{},{:.1f},{}", outcome.model, options.mode, options.seed,
                     options.finetune_tasks, outcome.train_s, outcome.unpredicted);
  for (const auto& [name, value] : metrics) out << fmt::format(",{:.6g}", value);
  out << '\n';
  if (!out.flush()) throw base::RunError("cannot write " + file.string());
  const Metrics& m = outcome.metrics;
  fmt::print(
      "{:<12} MAPE {:5.1f} %  median {:.1f} %  pairs {:.3f}  top-1 {:.2f} ({:.2f} of the best)  "
      "within 20 % {:.2f}  "
      "R2 {:.3f}  {} programs{}{}\n",
      outcome.model, m.mape * 100, m.median * 100, m.pairs, m.top1, m.peak1, m.within20, m.r2,
      m.count,
      outcome.unpredicted > 0 ? fmt::format(", {} not predicted", outcome.unpredicted) : "",
      outcome.train_s > 0 ? fmt::format(", trained {:.1f} s", outcome.train_s) : "");
  std::fflush(stdout);  // a comparison may take hours
}

}  // namespace sluice::predictor
