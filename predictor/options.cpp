#include "predictor/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <map>

#include "base/command_line.hpp"
#include "base/help_text.hpp"
#include "base/nearest.hpp"
#include "predictor/actions.hpp"
#include "predictor/data/mode.hpp"
#include "predictor/model/model.hpp"

namespace sluice::predictor {
namespace {

void add_packs(CLI::App& app, Options& options) {
  app.add_option("-i,--input", options.inputs,
                 options.action == "make_dataset"
                     ? "Packs (*.programs), records (*.jsonl), or folders of them"
                     : "Packs (*.programs), or folders of them")
      ->type_name("PATH")
      ->required();
}

void add_dataset(CLI::App& app, Options& options) {
  app.add_option("-i,--input", options.inputs,
                 "The folder of a data set, or packs and records (default: the installed data set)")
      ->type_name("PATH");
}

void add_mode(CLI::App& app, Options& options) {
  app.add_option("--mode", options.mode,
                 "Which labels train and test, such as h200.by_net:test-resnet_50,\n"
                 "by_device:train-h200,test-h200@32, h200:sample200, list-1-2, network-A-B,\n"
                 "h200:without-A-B.by_net:test-C. Without a split, every fifth label tests")
      ->type_name("MODE");
}

/// Of a loaded predictor.
void add_test_mode(CLI::App& app, Options& options) {
  app.add_option("--mode", options.mode,
                 "Which labels test, as for train. Default: mode and --seed of the training, so\n"
                 "that no program tests that the predictor was trained with")
      ->type_name("MODE");
}

void add_mode_of_devices(CLI::App& app, Options& options) {
  app.add_option("--mode", options.mode, "These devices only (default: all of the data set)")
      ->type_name("DEVICE[,DEVICE..]");
}

/// Models that were compared with what is left, and lost (docs/results/opbench.md).
std::string refused_model(const std::string& name) {
  if (std::ranges::find(model_names(), name) != model_names().end()) return {};
  for (const char* gone : {"transformer", "mlp", "lstm", "xgboost"}) {
    if (name == gone) return fmt::format("{} was replaced by gaussian, which errs less", name);
  }
  if (name == "roofline") return "roofline was replaced by analytic";
  if (name == "scaling") return "scaling was replaced by ratio";
  return base::with_remark(
      fmt::format("no model '{}'{}", name, base::did_you_mean(name, model_names())),
      fmt::format("the models are {}", fmt::join(model_names(), ", ")));
}

void add_models(CLI::App& app, Options& options) {
  app.add_option("--model", options.models, "What is trained and tested; several with commas")
      ->capture_default_str()
      ->delimiter(',')
      ->type_name("gaussian|ratio|analytic|copied")
      ->check(CLI::Validator(refused_model, ""));
}

void add_few_tasks(CLI::App& app, Options& options) {
  base::count_option(app, "--finetune_tasks", options.finetune_tasks,
                     "Gives so many of the tasks that test to the training, such as of the device\n"
                     "that is to be predicted",
                     0);
}

void add_replayed(CLI::App& app, Options& options) {
  app.add_option("--networks", options.networks, "These only; with commas")
      ->delimiter(',')
      ->type_name("NAME");
  base::count_option(app, "--streams", options.streams, "Calls that may run at once", 1, 1024);
}

void add_device_name(CLI::App& app, Options& options) {
  app.add_option("--device-name", options.device_name, "The device in devices.csv to predict for")
      ->type_name("NAME")
      ->required();
}

void add_top(CLI::App& app, Options& options) {
  base::count_option(app, "--top", options.top, "Programs of each task that are listed", 1);
}

void add_predictor(CLI::App& app, Options& options) {
  app.add_option(
         "--cache_dir", options.cache_dir,
         options.action == "train"
             ? "Folder that the predictor is saved in (default: predictor-cache)"
             : "Folder of the predictor that train saved (default: predictor-cache, and if\n"
               "that has none, the installed one)")
      ->type_name("DIR");
}

void add_out(CLI::App& app, Options& options) {
  app.add_option("--out", options.out,
                 options.action == "make_dataset"
                     ? "Folder that is written (default: dataset)"
                     : "Folder of the results (default: the --cache_dir, or predictor-cache)")
      ->type_name("DIR");
}

void add_seed(CLI::App& app, Options& options) {
  app.add_option("--seed", options.seed, "Of samples")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(0, std::numeric_limits<std::int64_t>::max()));
}

void add_devices(CLI::App& app, Options& options) {
  app.add_option("--devices", options.devices_file, "Another devices.csv")->type_name("FILE");
}

/// Adds the options that the action reads. Any other is refused, because a user who gives it
/// expects it to change something.
void add_options(CLI::App& app, Options& options) {
  using Groups = std::vector<void (*)(CLI::App&, Options&)>;
  static const std::map<std::string, Groups> kGroups{
      {"make_dataset", {add_packs, add_out}},
      {"train",
       {add_dataset, add_mode, add_models, add_predictor, add_out, add_few_tasks, add_seed,
        add_devices}},
      {"run", {add_dataset, add_test_mode, add_predictor, add_out, add_seed, add_devices}},
      {"analyze", {add_dataset, add_test_mode, add_predictor, add_out, add_seed, add_devices}},
      {"replay",
       {add_dataset, add_mode_of_devices, add_replayed, add_predictor, add_out, add_devices}},
      {"sche_search", {add_packs, add_device_name, add_top, add_predictor, add_out, add_devices}},
      {"rank", {add_device_name, add_predictor, add_devices}}};
  for (const auto add : kGroups.at(options.action)) add(app, options);
}

/// What must not wait for the data.
void check_mode(const Options& options) {
  const Mode mode = parse_mode(options.mode);
  Mode devices_only;
  devices_only.devices = mode.devices;
  if (options.action == "replay" && mode != devices_only) {
    throw base::UsageError("--mode: replay takes devices only, such as h200; see --networks");
  }
}

bool asks_for_help(const std::vector<std::string>& args) {
  return std::ranges::any_of(args,
                             [](const std::string& arg) { return arg == "-h" || arg == "--help"; });
}

}  // namespace

std::optional<int> parse_options(const std::vector<std::string>& args, Options& options) {
  const auto names = action_names();
  if (args.size() < 2 || args[1].starts_with('-')) {
    if (asks_for_help(args)) {
      base::print_help(general_help());
      return base::kExitFine;
    }
    throw base::UsageError(
        fmt::format("no action; it comes first, one of {}", fmt::join(names, ", ")));
  }
  options.action = args[1];
  const auto action = std::ranges::find(actions(), options.action, &Action::name);
  if (action == actions().end()) {
    throw base::UsageError(base::with_remark(
        "unknown action '" + options.action + "'" + base::did_you_mean(options.action, names),
        fmt::format("the actions are {}", fmt::join(names, ", "))));
  }
  if (!action->replaced_by.empty()) {
    throw base::UsageError(action->name + " was replaced: " + action->replaced_by);
  }
  CLI::App app(action->what, "sluice predict " + action->name);
  add_options(app, options);
  std::vector<const char*> argv;
  for (std::size_t i = 1; i < args.size(); ++i) argv.push_back(args[i].c_str());
  const auto exit_code = base::parse(app, static_cast<int>(argv.size()), argv.data());
  if (exit_code) return *exit_code;
  check_mode(options);
  return std::nullopt;
}

}  // namespace sluice::predictor
