#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::predictor {

/// The command line of `sluice predict`.
struct Options {
  std::string action;
  std::vector<std::string> inputs;  ///< Empty: the installed data set.
  std::string mode;
  std::vector<std::string> models{"gaussian"};
  std::string out;
  std::string cache_dir;  ///< Empty: predictor-cache; the installed one to read, if that has none.
  std::size_t finetune_tasks = 0;
  std::string devices_file;  ///< Empty: the installed one.
  std::string device_name;   ///< The device of devices.csv to predict for.
  std::uint64_t seed = 0;
  std::vector<std::string> networks;
  std::size_t streams = 1;
  std::size_t top = 5;
};

/// `args`: of action_first(). Returns the exit code if the program is to end now. Throws
/// base::UsageError.
[[nodiscard]] std::optional<int> parse_options(const std::vector<std::string>& args,
                                               Options& options);

}  // namespace sluice::predictor
