#include "predictor/actions.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/error.hpp"
#include "base/install.hpp"

namespace sluice::predictor {

const std::vector<Action>& actions() {
  static const std::vector<Action> kActions{
      {"make_dataset", "Packs and records -> dataset.cbor, tasks.csv, counts.csv"},
      {"train", "Trains and tests a predictor, or what it is compared with"},
      {"run", "Tests a predictor on a data set"},
      {"analyze", "Error by operator; what the data set has"},
      {"replay", "Networks end to end: predicted against measured"},
      {"sche_search", "The programs of each task that are predicted to be the fastest"},
      {"rank", "Predicts programs that it reads from standard input, for opbench run"},
      {"job_time", "The time of a job at an unmeasured batch size, from measured ones",
       "predict-sharing"},
      {"pairs", "How well the slowdown of pairs is predicted", "predict-sharing"},
      {"place", "Which models share a GPU", "predict-sharing"},
      {"report", "One HTML page of predictions", "predict-report"},
      {"tune", "(replaced)", "", "train has nothing to tune; it takes seconds"},
      {"profile", "(replaced)", "",
       "write the device's data sheet as a line of devices.csv, see --devices"}};
  return kActions;
}

std::vector<std::string> action_names() {
  std::vector<std::string> names;
  for (const Action& action : actions()) names.push_back(action.name);
  return names;
}

std::string general_help() {
  std::string about =
      "Learn how long tensor programs take on a device, and predict it for other programs, "
      "networks\nand devices.\n\n";
  for (const Action& action : actions()) {
    if (!action.replaced_by.empty()) continue;
    about += fmt::format("  {:<14} {}\n", action.name, action.what);
  }
  about += "\n`sluice predict ACTION --help` lists the options of an action.";
  CLI::App app(about, "sluice predict");
  std::string action;
  app.add_option("action", action, "What to do; it comes first")->required()->type_name("ACTION");
  app.add_option("-o", action, "The same, as an option")->type_name("ACTION");
  app.footer(
      "Examples:\n"
      "  sluice predict run\n"
      "  sluice predict make_dataset -i resnet.programs -i records.jsonl --out dataset\n"
      "  sluice predict train -i dataset --mode h200.by_net:test-resnet_50 --model "
      "gaussian,analytic\n"
      "  sluice predict train -i dataset --mode by_device:train-h200,test-h200@32 --model ratio "
      "--finetune_tasks 30\n"
      "  sluice predict replay -i dataset --networks resnet_50\n\n"
      "Exit codes: 0 fine, 1 the action failed, 2 wrong usage or bad files.");
  return app.help();
}

std::vector<std::string> action_first(std::vector<std::string> args) {
  if (args.size() < 2 || !args[1].starts_with('-')) return args;
  const auto option = std::ranges::find(args, "-o");
  if (option == args.end() || option + 1 == args.end()) return args;
  // -o and its value become the value alone, in front of all other arguments.
  std::rotate(args.begin() + 1, option, option + 2);
  args.erase(args.begin() + 1);
  return args;
}

void run_in_python(const std::vector<std::string>& args) {
  const auto action = std::ranges::find(actions(), args.size() > 1 ? args[1] : "", &Action::name);
  if (action == actions().end() || action->program.empty()) return;
  const std::string program = base::Install::of_this_program().subcommand(action->program);
  std::vector<std::string> words{program};
  // One program has several actions, and reads which.
  if (action->program == "predict-sharing") words.push_back(action->name);
  words.insert(words.end(), args.begin() + 2, args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  throw base::RunError("cannot run " + program + ": " + std::strerror(errno));
}

}  // namespace sluice::predictor
