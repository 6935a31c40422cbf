// `sluice predict`: learns and predicts how long tensor programs take.
#include <map>

#include "base/command_line.hpp"
#include "predictor/actions.hpp"
#include "predictor/commands/commands.hpp"

namespace sluice::predictor {
namespace {

int work(int argc, char** argv) {
  const auto args = action_first({argv, argv + argc});
  run_in_python(args);
  Options options;
  if (const auto exit_code = parse_options(args, options)) return *exit_code;
  const std::map<std::string, void (*)(const Options&)> commands{
      {"make_dataset", make_dataset_command},
      {"train", train_command},
      {"run", run_command},
      {"analyze", analyze_command},
      {"replay", replay_command},
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
