#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace sluice::predictor {

/// The command line of `sluice predict`.
struct Options {
  std::string action;
  std::vector<std::string> inputs;
  std::string mode;
  std::vector<std::string> models;  ///< Empty: the network of the config.
  std::string config;
  std::vector<std::string> settings;
  std::string out;
  std::string cache_dir = "predictor-cache";
  bool load_cache = false;
  std::string finetune_cache_dir;
  std::string finetune_datapath;
  std::size_t finetune_tasks = 0;
  std::string sampling = "kmeans";
  bool scratch = false;
  std::string devices_file;  ///< Empty: the installed one.
  std::string device_name;  ///< The line of devices.csv that `profile` writes, or a query's device.
  std::string metric = "mape";
  std::string device;
  int threads = 1;
  std::uint64_t seed = 0;
  double limit_s = 0;
  std::size_t trials = 20;
  std::vector<std::string> networks;
  std::size_t streams = 1;
  std::size_t top = 5;
};

/// True for the models that learn with LibTorch. Only these can be saved.
[[nodiscard]] bool is_network(const std::string& model);

/// `args`: of action_first(). Returns the exit code if the program is to end now. Throws
/// base::UsageError.
[[nodiscard]] std::optional<int> parse_options(const std::vector<std::string>& args,
                                               Options& options);

}  // namespace sluice::predictor
