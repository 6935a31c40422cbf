#pragma once
#include <optional>
#include <string>

namespace sluice::engine {

/// The command line of sluice-operators, which `sluice opbench run --executor torch` starts.
struct OperatorOptions {
  std::string model;
  std::size_t batch = 1;
  std::optional<int> gpu;  ///< None: the CPU.
  int threads = 1;         ///< Of an operator on the CPU.
  std::size_t repeats = 20;
  std::string store;
  std::string out = "data";
};

/// Returns nothing, or the exit code with which to exit now. Throws base::UsageError.
[[nodiscard]] std::optional<int> parse_operator_options(int argc, char** argv,
                                                        OperatorOptions& options);

}  // namespace sluice::engine
