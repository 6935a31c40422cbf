// `sluice predict` in a build without LibTorch: help, the actions in Python, and one line of error.
#include "base/command_line.hpp"
#include "predictor/actions.hpp"
#include "predictor/options.hpp"

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice predict", [&] {
    const auto args = sluice::predictor::action_first({argv, argv + argc});
    sluice::predictor::run_in_python(args);
    sluice::predictor::Options options;
    const auto exit_code = sluice::predictor::parse_options(args, options);
    if (exit_code) return *exit_code;
    throw sluice::base::RunError("built without LibTorch; `./x torch`, then build again");
  });
}
