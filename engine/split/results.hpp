#pragma once
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/output.hpp"
#include "engine/split/search.hpp"

namespace sluice::engine {

/// results-MODEL_K.csv, as published: a line for each generation.
class ResultsFile {
 public:
  /// Throws base::RunError if the file cannot be created.
  ResultsFile(const std::filesystem::path& file, std::string model);
  void add(const SplitSearch::Generation& generation);

 private:
  base::LineFile file_;
  std::string model_;
};

/// What was measured: a model file on a device. Times of one are no use for another.
struct MeasuredTarget {
  std::string file;
  std::uintmax_t file_bytes = 0;
  std::size_t nodes = 0;
  std::string gpu;
  std::string torch;
  std::size_t batch = 0;

  [[nodiscard]] nlohmann::ordered_json to_json() const;
};

/// The times of every measured candidate.
using CandidateTimes = std::map<Cuts, SplitTimes>;

/// log/split-log.json: the target, and every candidate with its times.
void write_log(const std::filesystem::path& file, const MeasuredTarget& target,
               const std::string& tag, const CandidateTimes& candidates);

/// The candidates in the log of an earlier run. Empty if there is no log, or one of another target.
/// Throws base::UsageError if the log cannot be understood.
[[nodiscard]] CandidateTimes read_log(const std::filesystem::path& file,
                                      const MeasuredTarget& target);

}  // namespace sluice::engine
