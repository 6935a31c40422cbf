#include "predictor/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iostream>
#include <limits>
#include <map>

#include "base/command_line.hpp"
#include "base/nearest.hpp"
#include "predictor/actions.hpp"
#include "predictor/data/mode.hpp"

namespace sluice::predictor {
namespace {

void add_packs(CLI::App& app, Options& options) {
  app.add_option("-i,--input", options.inputs,
                 options.action == "make_dataset"
                     ? "Packs (*.programs), records (*.jsonl), or folders of them"
                     : "Packs (*.programs), or folders of them")
      ->type_name("PATH");
}

void add_dataset(CLI::App& app, Options& options) {
  app.add_option("-i,--input", options.inputs, "The folder of a data set")->type_name("DIR");
}

void add_mode(CLI::App& app, Options& options) {
  app.add_option("--mode", options.mode,
                 "Which labels train and test, such as h200.by_net:test-resnet_50,\n"
                 "by_device:train-h200,test-h200@32, h200:sample200, list-1-2, network-A-B.\n"
                 "Without a split, every fifth label tests")
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

void add_models(CLI::App& app, Options& options) {
  app.add_option("--model", options.models,
                 "What is trained and tested; several with commas (default: the network of the\n"
                 "config, which is a transformer). Only transformer, mlp and lstm can be saved")
      ->delimiter(',')
      ->type_name("NAME")
      ->check(base::one_of({"transformer", "mlp", "lstm", "xgboost", "ratio", "roofline", "copied",
                            "scaling", "mean"}));
}

void add_network(CLI::App& app, Options& options) {
  app.add_option("--model", options.models, "The network (default: that of the config)")
      ->expected(1)
      ->type_name("transformer|mlp|lstm")
      ->check(base::one_of({"transformer", "mlp", "lstm"}));
}

void add_config(CLI::App& app, Options& options) {
  app.add_option("-c,--config", options.config,
                 "Shape and training of the network: a JSON file, or cpu (default), gpu, "
                 "search_trial_1575")
      ->type_name("FILE");
  app.add_option("--set", options.settings, "One setting of the config; may be repeated")
      ->type_name("KEY=VALUE");
}

void add_saved(CLI::App& app, Options& options) {
  app.add_flag("--load_cache", options.load_cache, "Goes on with the predictor in --cache_dir");
  app.add_option("--finetune_cache_dir", options.finetune_cache_dir,
                 "Fine-tunes the predictor of this folder")
      ->type_name("DIR");
  app.add_option("--finetune_datapath", options.finetune_datapath,
                 "The data set to fine-tune with, in place of -i")
      ->type_name("DIR");
}

void add_few_tasks(CLI::App& app, Options& options) {
  base::count_option(app, "--finetune_tasks", options.finetune_tasks,
                     "Gives so many of the tasks that test to fine-tuning", 0);
  app.add_option("--sampling", options.sampling, "How those tasks are chosen")
      ->capture_default_str()
      ->type_name("kmeans|random")
      ->check(base::one_of({"kmeans", "random"}))
      ->needs("--finetune_tasks");
  app.add_flag("--scratch", options.scratch, "Trains with those tasks only, for comparison")
      ->needs("--finetune_tasks");
}

void add_search(CLI::App& app, Options& options) {
  app.add_option("--metric", options.metric, "What tune looks for")
      ->capture_default_str()
      ->type_name("mape|rmse_s|r2|pairs|peak1")
      ->check(base::one_of({"mape", "rmse_s", "r2", "pairs", "peak1"}));
  base::count_option(app, "--trials", options.trials, "Configs that tune tries", 1, 100'000);
}

void add_replayed(CLI::App& app, Options& options) {
  app.add_option("--networks", options.networks, "These only; with commas")
      ->delimiter(',')
      ->type_name("NAME");
  base::count_option(app, "--streams", options.streams, "Calls that may run at once", 1, 1024);
}

void add_device_name(CLI::App& app, Options& options) {
  app.add_option("--device-name", options.device_name,
                 options.action == "profile" ? "The device in devices.csv that is written"
                                             : "The device in devices.csv to predict for")
      ->type_name("NAME");
}

void add_top(CLI::App& app, Options& options) {
  base::count_option(app, "--top", options.top, "Programs of each task that are listed", 1);
}

void add_predictor(CLI::App& app, Options& options) {
  app.add_option("--cache_dir", options.cache_dir,
                 options.action == "train"  ? "Folder that the predictor is saved in"
                 : options.action == "tune" ? "Folder of the results without --out"
                                            : "Folder of the predictor that train saved")
      ->capture_default_str()
      ->type_name("DIR");
}

void add_out(CLI::App& app, Options& options) {
  app.add_option("--out", options.out,
                 options.action == "make_dataset"
                     ? "Folder that is written (default: dataset)"
                     : "Folder of the results (default: the --cache_dir)")
      ->type_name("DIR");
}

void add_seed(CLI::App& app, Options& options) {
  app.add_option("--seed", options.seed, "Of weights, order and samples")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(0, std::numeric_limits<std::int64_t>::max()));
}

void add_limit(CLI::App& app, Options& options) {
  app.add_option("--limit-s", options.limit_s, "Ends the training of a network after S seconds")
      ->type_name("S")
      ->check(base::number(0.1, 1e6));
}

void add_machine(CLI::App& app, Options& options) {
  app.add_option("--devices", options.devices_file, "Another devices.csv")->type_name("FILE");
  app.add_option("--device", options.device,
                 "Where the network runs (default: a GPU if there is one)")
      ->type_name("cpu|cuda")
      ->check(base::one_of({"cpu", "cuda"}));
  app.add_option("--threads", options.threads,
                 "Threads of an operator on the CPU; more pay for large networks only")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 1024));
}

/// Adds the options that the action reads. Any other is refused, because a user who gives it
/// expects it to change something.
void add_options(CLI::App& app, Options& options) {
  using Groups = std::vector<void (*)(CLI::App&, Options&)>;
  static const std::map<std::string, Groups> kGroups{
      {"make_dataset", {add_packs, add_out}},
      {"train",
       {add_dataset, add_mode, add_models, add_config, add_predictor, add_out, add_saved,
        add_few_tasks, add_seed, add_limit, add_machine}},
      {"run", {add_dataset, add_test_mode, add_predictor, add_out, add_seed, add_machine}},
      {"tune",
       {add_dataset, add_mode, add_network, add_config, add_search, add_predictor, add_out,
        add_seed, add_limit, add_machine}},
      {"analyze", {add_dataset, add_test_mode, add_predictor, add_out, add_seed, add_machine}},
      {"replay",
       {add_dataset, add_mode_of_devices, add_replayed, add_predictor, add_out, add_machine}},
      {"profile", {add_device_name, add_machine}},
      {"sche_search", {add_packs, add_device_name, add_top, add_predictor, add_out, add_machine}},
      {"rank", {add_device_name, add_predictor, add_machine}}};
  for (const auto add : kGroups.at(options.action)) add(app, options);
}

void check_inputs(const Options& options) {
  const std::string& action = options.action;
  if (action == "profile" || action == "rank") return;
  const bool packs = action == "make_dataset" || action == "sche_search";
  if (options.inputs.empty() && options.finetune_datapath.empty()) {
    throw base::UsageError("-i is missing: " +
                           std::string(action == "make_dataset"  ? "packs and records"
                                       : action == "sche_search" ? "packs"
                                                                 : "the folder of a data set"));
  }
  if (!packs && options.inputs.size() > 1) {
    throw base::UsageError("-i: one data set only; make_dataset makes one of several records");
  }
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

/// Training goes on with a saved network: all that is saved with it cannot be given again.
void check_saved(const Options& options, const std::string& option) {
  if (!options.config.empty() || !options.settings.empty()) {
    throw base::UsageError(option + " goes on with the saved config; leave out -c and --set");
  }
  if (options.scratch) {
    throw base::UsageError("--scratch trains a new predictor; leave out " + option);
  }
  for (const std::string& model : options.models) {
    if (!is_network(model)) {
      throw base::UsageError(option + ": only transformer, mlp and lstm are saved, not " + model);
    }
  }
}

void check_train(const Options& options) {
  const bool tunes = !options.finetune_cache_dir.empty();
  if (tunes && options.load_cache) {
    throw base::UsageError("--load_cache or --finetune_cache_dir, not both");
  }
  if (tunes && options.models.size() > 1) {
    throw base::UsageError("--finetune_cache_dir has one predictor; give one --model, or none");
  }
  if (tunes) check_saved(options, "--finetune_cache_dir");
  if (options.load_cache) check_saved(options, "--load_cache");
  if (!options.finetune_datapath.empty() && !tunes) {
    throw base::UsageError("--finetune_datapath needs --finetune_cache_dir");
  }
  if (!options.finetune_datapath.empty() && !options.inputs.empty()) {
    throw base::UsageError("--finetune_datapath or -i, not both: one data set is read");
  }
  if (options.scratch && options.finetune_tasks == 0) {
    throw base::UsageError("--scratch: no task to train with; --finetune_tasks is 0");
  }
}

void check_config(const Options& options) {
  const bool given = !options.config.empty() || !options.settings.empty();
  if (given && !options.models.empty() && std::ranges::none_of(options.models, is_network)) {
    throw base::UsageError(fmt::format("-c and --set are for networks; {} reads neither",
                                       fmt::join(options.models, ", ")));
  }
  const auto names_network = [](const std::string& text) { return text.starts_with("network="); };
  if (!options.models.empty() && std::ranges::any_of(options.settings, names_network)) {
    throw base::UsageError("--set network=.. or --model, not both");
  }
}

bool asks_for_help(const std::vector<std::string>& args) {
  return std::ranges::any_of(args,
                             [](const std::string& arg) { return arg == "-h" || arg == "--help"; });
}

}  // namespace

bool is_network(const std::string& model) {
  return model == "transformer" || model == "mlp" || model == "lstm";
}

std::optional<int> parse_options(const std::vector<std::string>& args, Options& options) {
  const auto names = action_names();
  if (args.size() < 2 || args[1].starts_with('-')) {
    if (asks_for_help(args)) {
      std::cout << general_help() << '\n';
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
  CLI::App app(action->what, "sluice predict " + action->name);
  add_options(app, options);
  std::vector<const char*> argv;
  for (std::size_t i = 1; i < args.size(); ++i) argv.push_back(args[i].c_str());
  const auto exit_code = base::parse(app, static_cast<int>(argv.size()), argv.data());
  if (exit_code) return *exit_code;
  check_inputs(options);
  check_mode(options);
  check_train(options);
  check_config(options);
  return std::nullopt;
}

}  // namespace sluice::predictor
