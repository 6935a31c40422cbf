// sluice-operators in a build without LibTorch: help and one line of error.
#include "base/built_without.hpp"
#include "base/command_line.hpp"
#include "engine/operators/options.hpp"

int main(int argc, char** argv) {
  return sluice::base::run_program("sluice opbench", [&] {
    sluice::engine::OperatorOptions options;
    const auto exit_code = sluice::engine::parse_operator_options(argc, argv, options);
    if (exit_code) return *exit_code;
    throw sluice::base::built_without("LibTorch", "./x torch");
  });
}
