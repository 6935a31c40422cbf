#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "engine/split/search.hpp"

namespace sluice::engine {

/// The command line of `sluice split`.
struct SplitOptions {
  std::string model;
  std::optional<std::size_t> blocks;  ///< None: only list the cuts.
  std::size_t batch = 1;
  std::optional<int> device;
  bool cpu = false;
  std::optional<int> threads;
  SearchOptions search;
  bool early_end = false;
  std::string operators;                ///< op.csv; empty: times of one pass.
  std::optional<std::size_t> measured;  ///< Measure only so many, the best by summed times.
  bool use_cache = false;
  std::string tag;
  double limit_s = 300;
  std::string store;
  std::string out = ".";
  bool list_cuts = false;
  bool json = false;
};

/// Returns nothing, or the exit code with which to exit now. Throws base::UsageError.
[[nodiscard]] std::optional<int> parse_split_options(int argc, char** argv, SplitOptions& options);

}  // namespace sluice::engine
