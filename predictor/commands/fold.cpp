#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>
#include <utility>

#include "base/error.hpp"
#include "base/json_node.hpp"
#include "predictor/commands/commands.hpp"
#include "predictor/data/mode.hpp"

namespace sluice::predictor {
namespace {

std::vector<std::size_t> tasks_in(const Dataset& data, std::span<const Label> labels) {
  std::set<std::size_t> tasks;
  for (const Label& label : labels) tasks.insert(data.programs[label.query.program].task);
  return {tasks.begin(), tasks.end()};
}

/// Moves the labels of some tasks from the test to the tuning.
void choose_tuning(const Dataset& data, const Options& options, Fold& fold) {
  if (options.finetune_tasks == 0) return;
  const auto tasks = tasks_in(data, fold.test);
  if (options.finetune_tasks >= tasks.size()) {
    throw base::UsageError(
        fmt::format("--finetune_tasks {}: only {} tasks test, and some must be left",
                    options.finetune_tasks, tasks.size()));
  }
  std::set<std::size_t> tuning;
  for (const std::size_t i : choose_random(tasks.size(), options.finetune_tasks, options.seed)) {
    tuning.insert(tasks[i]);
  }
  fmt::print("Selected {} tasks: {}\n", tuning.size(), fmt::join(tuning, ", "));
  std::vector<Label> test;
  for (const Label& label : fold.test) {
    (tuning.contains(data.programs[label.query.program].task) ? fold.tune : test).push_back(label);
  }
  fold.test = std::move(test);
}

/// Takes over the split that predictor.json records. False if it has none.
bool take_saved_split(Options& options) {
  const auto file = predictor_folder(options) / "predictor.json";
  const auto saved = base::parse_json_file(file);
  if (!saved.contains("mode")) return false;
  try {
    options.mode = saved.at("mode");
    options.seed = saved.value("seed", options.seed);
    options.finetune_tasks = saved.value("finetune_tasks", std::size_t{0});
  } catch (const nlohmann::json::exception&) {
    throw base::UsageError(file.string() + " is damaged; `sluice predict train` makes one");
  }
  return true;
}

}  // namespace

Fold fold_of(const Dataset& data, const Options& options) {
  Fold fold = make_fold(data, parse_mode(options.mode), options.seed);
  choose_tuning(data, options, fold);
  return fold;
}

std::vector<Label> test_labels(const Dataset& data, Options& options) {
  if (!options.mode.empty()) return fold_of(data, options).test;
  std::string why = "predictor.json has no mode";
  Options saved = options;
  if (take_saved_split(saved)) {
    try {
      auto test = fold_of(data, saved).test;
      fmt::print("tests the labels that tested in the training: {}\n",
                 saved.mode.empty() ? "every fifth"
                                    : fmt::format("--mode '{}' --seed {}", saved.mode, saved.seed));
      options = saved;
      return test;
    } catch (const base::UsageError& error) {  // another data set
      why = error.what();
    }
  }
  fmt::print(stderr,
             "sluice predict: the split of the training cannot be used ({}): all {} labels test, "
             "also those of programs that the predictor was trained with; see --mode\n",
             why, data.labels.size());
  return data.labels;
}

}  // namespace sluice::predictor
