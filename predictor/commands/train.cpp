#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.hpp"
#include "predictor/commands/commands.hpp"

namespace sluice::predictor {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

/// Where a model goes: the predictor that later commands load, and the results of its training.
struct Folders {
  fs::path predictor;
  fs::path results;
};

Folders folders_of(const std::string& model, const Options& options) {
  Options own = options;
  if (own.cache_dir.empty()) own.cache_dir = "predictor-cache";
  Folders folders{own.cache_dir, results_folder(own)};
  if (options.models.size() > 1) {
    folders.predictor /= model;
    folders.results /= model;
  }
  return folders;
}

/// Refuses to write results next to the predictor of another training, for whose they would be
/// taken.
void keep_apart(const Folders& folders) {
  if (!fs::exists(folders.results / "predictor.cbor")) return;
  if (fs::exists(folders.predictor) && fs::equivalent(folders.predictor, folders.results)) return;
  throw base::UsageError(folders.results.string() +
                         " has a saved predictor, and these results are not its own; give --out "
                         "another folder");
}

void save(const Options& options, const Loaded& loaded, const LatencyModel& model,
          const Outcome& outcome, const fs::path& folder) {
  fs::create_directories(folder);
  save_model(folder, outcome.model, model);
  ordered_json metrics;
  for (const auto& [name, value] : columns(outcome.metrics)) metrics[name] = value;
  const ordered_json about{
      {"model", outcome.model},         {"mode", options.mode},
      {"seed", options.seed},           {"finetune_tasks", options.finetune_tasks},
      {"devices", loaded.data.devices}, {"train_s", outcome.train_s},
      {"metrics", std::move(metrics)}};
  std::ofstream out(folder / "predictor.json");
  out << about.dump(1) << '\n';
  if (!out.flush()) throw base::RunError("cannot write into " + folder.string());
}

}  // namespace

void train_command(const Options& options) {
  for (const std::string& name : options.models) keep_apart(folders_of(name, options));
  const Loaded loaded = load(options);
  const Fold fold = fold_of(loaded.data, options);
  const Lesson lesson{loaded.data, loaded.devices, fold.train, fold.tune};
  fmt::print("{} labels train, {} tune, {} test\n", fold.train.size(), fold.tune.size(),
             fold.test.size());
  for (const std::string& name : options.models) {
    const Folders folders = folders_of(name, options);
    const auto begin = std::chrono::steady_clock::now();
    const auto model = make_model(name, options.seed);
    model->fit(lesson);
    const std::chrono::duration<double> trained = std::chrono::steady_clock::now() - begin;
    Outcome outcome = evaluate(name, *model, loaded, fold.test, folders.results);
    outcome.train_s = trained.count();
    save(options, loaded, *model, outcome, folders.predictor);
    report(outcome, options, results_folder(options));
  }
}

void run_command(const Options& options) {
  const fs::path folder = results_folder(options);
  keep_apart({predictor_folder(options), folder});
  const Loaded loaded = load(options);
  const auto model = load_predictor(options);
  Options used = options;
  const auto test = test_labels(loaded.data, used);
  report(evaluate("loaded", *model, loaded, test, folder), used, folder);
}

}  // namespace sluice::predictor
