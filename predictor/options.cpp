#include "predictor/options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/command_line.hpp"
#include "base/nearest.hpp"
#include "predictor/data/mode.hpp"

namespace sluice::predictor {
namespace {

const std::vector<std::string>& actions() {
  static const std::vector<std::string> kActions{"make_dataset", "train",       "run",
                                                 "tune",         "analyze",     "replay",
                                                 "profile",      "sche_search", "rank"};
  return kActions;
}

void add_data_options(CLI::App& app, Options& options) {
  app.add_option(
         "-i,--input", options.inputs,
         "make_dataset, sche_search: packs (*.programs), records (*.jsonl), folders of them.\n"
         "Others: the folder of a data set")
      ->type_name("PATH");
  app.add_option("--mode", options.mode,
                 "Which labels train and test, such as h200.by_net:test-resnet_50,\n"
                 "by_device:train-h200,test-h200@32, h200:sample200, list-1-2, network-A-B.\n"
                 "Without a split, every fifth label tests")
      ->type_name("MODE");
  app.add_option("--devices", options.devices_file, "Another devices.csv")->type_name("FILE");
  app.add_option(
         "--device-name", options.device_name,
         "The device in devices.csv that profile writes, or that sche_search and rank predict for")
      ->type_name("NAME");
  app.add_option("--out", options.out,
                 "Folder of the results (make_dataset: dataset; others: the --cache_dir)")
      ->type_name("DIR");
}

void add_model_options(CLI::App& app, Options& options) {
  app.add_option("--model", options.models, "What is trained and tested; several with commas")
      ->delimiter(',')
      ->capture_default_str()
      ->type_name("NAME")
      ->check(base::one_of({"transformer", "mlp", "lstm", "xgboost", "ratio", "roofline", "copied",
                            "scaling", "mean"}));
  app.add_option("-c,--config", options.config,
                 "Shape and training of the network: a JSON file, or search_trial_1575")
      ->type_name("FILE");
  app.add_option("--set", options.settings, "One setting of the config; may be repeated")
      ->type_name("KEY=VALUE");
  app.add_option("--cache_dir", options.cache_dir,
                 "Folder of the predictor: train writes it, others read it")
      ->capture_default_str()
      ->type_name("DIR");
  app.add_flag("--load_cache", options.load_cache, "train goes on with that predictor");
  app.add_option("--finetune_cache_dir", options.finetune_cache_dir,
                 "train fine-tunes the predictor of this folder")
      ->type_name("DIR");
  app.add_option("--finetune_datapath", options.finetune_datapath,
                 "with this data set (default: that of -i)")
      ->type_name("DIR");
  base::count_option(app, "--finetune_tasks", options.finetune_tasks,
                     "Gives so many of the tasks that test to fine-tuning", 0);
  app.add_option("--sampling", options.sampling, "How those tasks are chosen")
      ->capture_default_str()
      ->type_name("kmeans|random")
      ->check(base::one_of({"kmeans", "random"}));
  app.add_flag("--scratch", options.scratch, "Trains with those tasks only, for comparison");
}

void add_run_options(CLI::App& app, Options& options) {
  app.add_option("--metric", options.metric, "What tune looks for")
      ->capture_default_str()
      ->type_name("mape|rmse_s|r2|pairs|peak1")
      ->check(base::one_of({"mape", "rmse_s", "r2", "pairs", "peak1"}));
  app.add_option("--device", options.device,
                 "Where the network runs (default: a GPU if there is one)")
      ->type_name("cpu|cuda")
      ->check(base::one_of({"cpu", "cuda"}));
  app.add_option("--threads", options.threads,
                 "Threads of an operator on the CPU; more pay for large networks only")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(1, 1024));
  app.add_option("--seed", options.seed, "Of weights, order and samples")
      ->capture_default_str()
      ->type_name("N")
      ->check(base::whole_number(0, std::numeric_limits<std::int64_t>::max()));
  app.add_option("--limit-s", options.limit_s, "Ends a training after S seconds")
      ->type_name("S")
      ->check(base::number(0.1, 1e6));
  base::count_option(app, "--trials", options.trials, "Configs that tune tries", 1, 100'000);
  app.add_option("--networks", options.networks, "replay: these only; with commas")
      ->delimiter(',')
      ->type_name("NAME");
  base::count_option(app, "--streams", options.streams, "replay: calls that may run at once", 1,
                     1024);
  base::count_option(app, "--top", options.top,
                     "sche_search: programs of each task that are listed", 1);
}

void check_action(const Options& options) {
  if (options.action.empty()) {
    throw base::UsageError("no action; give one of " +
                           fmt::format("{}", fmt::join(actions(), ", ")));
  }
  if (std::ranges::find(actions(), options.action) == actions().end()) {
    throw base::UsageError(base::with_remark(
        "unknown action '" + options.action + "'" + base::did_you_mean(options.action, actions()),
        fmt::format("the actions are {}", fmt::join(actions(), ", "))));
  }
  const bool reads_files = options.action != "profile" && options.action != "rank";
  if (reads_files && options.inputs.empty()) {
    throw base::UsageError("-i is missing: " + std::string(options.action == "make_dataset"
                                                               ? "packs and records"
                                                               : "the folder of a data set"));
  }
}

}  // namespace

std::optional<int> parse_options(int argc, char** argv, Options& options) {
  CLI::App app(
      "Learn how long tensor programs take on a device, and predict it for other programs, "
      "networks\n"
      "and devices.\n\n"
      "  make_dataset   packs and records -> dataset.pt, tasks.csv\n"
      "  train          trains and tests a predictor, or what it is compared with\n"
      "  run            tests a predictor on a data set\n"
      "  tune           searches for a good config\n"
      "  analyze        error by operator; what the data set has\n"
      "  replay         networks end to end: predicted against measured\n"
      "  profile        measures this machine's device for devices.csv\n"
      "  sche_search    the programs of each task that are predicted to be the fastest\n"
      "  rank           predicts programs that it reads from standard input, for opbench run\n"
      "  job_time       the time of a job at an unmeasured batch size, from measured ones\n"
      "  pairs          how well the slowdown of pairs is predicted\n"
      "  place          which models share a GPU\n"
      "  report         one HTML page of predictions; see sluice predict report --help; the three "
      "above it likewise",
      "sluice predict");
  std::string action_option;
  app.add_option("action", options.action, "What to do")->type_name("ACTION");
  app.add_option("-o", action_option, "The same, as an option")->type_name("ACTION");
  add_data_options(app, options);
  add_model_options(app, options);
  add_run_options(app, options);
  app.footer(
      "Examples:\n"
      "  sluice predict make_dataset -i resnet.programs -i records.jsonl --out dataset\n"
      "  sluice predict train -i dataset --mode h200.by_net:test-resnet_50 --model "
      "transformer,xgboost\n"
      "  sluice predict train -i dataset --mode by_device:train-h200,test-h200@32 --finetune_tasks "
      "30\n"
      "  sluice predict replay -i dataset --networks resnet_50");
  if (const auto exit_code = base::parse(app, argc, argv)) return exit_code;
  if (options.action.empty()) options.action = action_option;
  check_action(options);
  (void)parse_mode(options.mode);  // a mistake there must not wait for the data
  return std::nullopt;
}

}  // namespace sluice::predictor
