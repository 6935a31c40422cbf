#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <cstdio>
#include <fstream>

#include "base/error.hpp"
#include "base/install.hpp"
#include "predictor/commands/commands.hpp"
#include "predictor/train/dataset_file.hpp"

namespace sluice::predictor {
namespace {

namespace fs = std::filesystem;

void write_predictions(const fs::path& file, const Dataset& data, std::span<const Label> labels,
                       std::span<const double> predicted) {
  std::ofstream out(file);
  out << "program,task,name,device,leaves,measured_s,predicted_s\n";
  for (std::size_t i = 0; i < labels.size(); ++i) {
    const Program& program = data.programs[labels[i].query.program];
    const Task& task = data.tasks[program.task];
    out << fmt::format("{},{},{},{},{},{:.6g},{:.6g}\n", program.id, task.id, task.name,
                       data.devices[labels[i].query.device], program.leaves.size(),
                       labels[i].seconds, predicted[i]);
  }
  if (!out.flush()) throw base::RunError("cannot write " + file.string());
}

}  // namespace

fs::path devices_file(const Options& options) {
  if (!options.devices_file.empty()) return options.devices_file;
  return base::Install::of_this_program().root() / "share/sluice/predictor/devices.csv";
}

fs::path results_folder(const Options& options) {
  return options.out.empty() ? options.cache_dir : options.out;
}

Config config_of(const Options& options) {
  Config config = find_config(options.config.empty() ? "cpu" : options.config);
  for (const std::string& setting : options.settings) config = with_setting(config, setting);
  return config;
}

Loaded load(const std::string& folder, const Options& options) {
  Loaded loaded{load_dataset((fs::path(folder) / "dataset.pt").string()), {}};
  const auto known = read_devices(devices_file(options).string());
  for (const std::string& name : loaded.data.devices) {
    loaded.devices.push_back(device_info(known, name));
  }
  return loaded;
}

std::unique_ptr<LearnedModel> load_predictor(const Options& options) {
  TrainOptions where;
  where.device = options.device;
  where.threads = options.threads;
  return load_learned(options.cache_dir, where);
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
    out << "model,mode,seed,finetune_tasks,sampling,config,settings,train_s,unpredicted";
    for (const auto& [name, value] : metrics) out << ',' << name;
    out << '\n';
  }
  std::string sampling = options.finetune_tasks > 0 ? options.sampling : "";
  if (options.scratch) sampling += " scratch";
  out << fmt::format("{},\"{}\",{},{},{},{},\"{}\",{:.1f},{}", outcome.model, options.mode,
                     options.seed, options.finetune_tasks, sampling, options.config,
                     fmt::join(options.settings, " "), outcome.train_s, outcome.unpredicted);
  for (const auto& [name, value] : metrics) out << fmt::format(",{:.6g}", value);
  out << '\n';
  if (!out.flush()) throw base::RunError("cannot write " + file.string());
  const Metrics& m = outcome.metrics;
  fmt::print(
      "{:<12} MAPE {:5.1f} %  pairs {:.3f}  top-1 {:.2f} ({:.2f} of the best)  within 20 % {:.2f}  "
      "R2 {:.3f}  {} programs{}, trained {:.1f} s\n",
      outcome.model, m.mape * 100, m.pairs, m.top1, m.peak1, m.within20, m.r2, m.count,
      outcome.unpredicted > 0 ? fmt::format(", {} not predicted", outcome.unpredicted) : "",
      outcome.train_s);
  std::fflush(stdout);  // a comparison may take hours
}

}  // namespace sluice::predictor
