#pragma once
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace sluice::predictor {

/// Shape and training of a network. Read from JSON; every key may be left out.
struct Config {
  std::string network = "transformer";  ///< Or "mlp", "lstm".
  // Shape.
  std::int64_t layers = 2;  ///< Of the transformer encoder.
  std::int64_t heads = 4;
  std::int64_t feed_forward = 256;
  std::int64_t flatten = 128;                     ///< Width of what all leaves together become.
  std::vector<std::int64_t> embedding{128, 128};  ///< Hidden layers of the embedding.
  std::int64_t embedding_width = 64;
  std::vector<std::int64_t> device{64};  ///< Hidden layers for the device.
  std::vector<std::int64_t> decoder{128, 128};
  bool positions = true;  ///< Adds the sinusoid of each leaf's position to its features.
  // Training.
  std::string labels = "boxcox";  ///< Or "log", "none".
  double mse = 1000;              ///< Weights of the two parts of the loss.
  double mape = 1;
  double cmd = 0;  ///< Weight of the central moment discrepancy, of a fold with `unlabelled`.
  double lr = 1e-3;
  std::string schedule = "cosine";  ///< Or "cycle", "constant".
  double weight_decay = 1e-4;
  std::int64_t batch = 128;
  std::int64_t epochs = 200;
  std::int64_t tune_epochs = 100;
  double dropout = 0;
};

/// Reads a config. Throws base::UsageError that names the key and what is allowed.
[[nodiscard]] Config parse_config(const nlohmann::json& json, const std::string& where);
[[nodiscard]] nlohmann::ordered_json to_json(const Config& config);

/// The config in a file, or the one of that name which is installed.
[[nodiscard]] Config find_config(const std::string& name);

/// The config with "KEY=VALUE"; the value is JSON, or a word.
[[nodiscard]] Config with_setting(const Config& config, const std::string& setting);

}  // namespace sluice::predictor
