// `sluice predict` in a build without LibTorch: help and one line of error.
#include "base/command_line.hpp"
#include "predictor/options.hpp"

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice predict", [&] {
    sluice::predictor::Options options;
    const auto exit_code = sluice::predictor::parse_options(argc, argv, options);
    if (exit_code) return *exit_code;
    throw sluice::base::RunError("built without LibTorch; `./x torch`, then build again");
  });
}
