// `sluice predict`: learns and predicts how long tensor programs take.
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>

#include "base/command_line.hpp"
#include "base/install.hpp"
#include "predictor/commands/commands.hpp"

namespace sluice::predictor {
namespace {

/// The page, and what needs no trained predictor, are in Python.
[[noreturn]] void become(std::string_view command, char** args) {
  const std::string program = base::Install::of_this_program().subcommand(command);
  args[0] = const_cast<char*>(program.c_str());
  execv(program.c_str(), args);
  throw base::RunError("cannot run " + program + ": " + std::strerror(errno));
}

int work(int argc, char** argv) {
  const std::string_view action = argc > 1 ? argv[1] : "";
  if (action == "report") become("predict-report", argv + 1);
  if (action == "job_time" || action == "pairs" || action == "place") {
    become("predict-sharing", argv);
  }
  Options options;
  if (const auto exit_code = parse_options(argc, argv, options)) return *exit_code;
  const std::map<std::string, void (*)(const Options&)> commands{
      {"make_dataset", make_dataset_command},
      {"train", train_command},
      {"run", run_command},
      {"tune", tune_command},
      {"analyze", analyze_command},
      {"replay", replay_command},
      {"profile", profile_command},
      {"sche_search", search_command},
      {"rank", rank_command}};
  commands.at(options.action)(options);
  return base::kExitFine;
}

}  // namespace
}  // namespace sluice::predictor

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice predict",
                                   [&] { return sluice::predictor::work(argc, argv); });
}
