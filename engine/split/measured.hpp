#pragma once
#include <string>

#include "engine/operators/operator_table.hpp"
#include "engine/split/options.hpp"
#include "engine/split/results.hpp"
#include "engine/torch/split_target.hpp"

namespace sluice::engine {

/// A model whose candidates are measured until the time is over, with progress on stderr.
class MeasuredSplit {
 public:
  /// `gpu`: what is measured on, as in a split. `known`: candidates that need no measuring.
  MeasuredSplit(const SplitTarget& target, const SplitOptions& options, std::string gpu,
                CandidateTimes known);

  [[nodiscard]] const CandidateTimes& times() const { return times_; }
  /// Why the search ended.
  [[nodiscard]] const std::string& ended() const { return ended_; }
  /// Candidates that were rated by summed times; 0 without --measure.
  [[nodiscard]] std::size_t rated() const { return rated_; }

  /// Searches; adds a line to `results` for each generation.
  [[nodiscard]] Candidate search(ResultsFile& results);

 private:
  void read_times();
  [[nodiscard]] SearchSpace space() const;
  [[nodiscard]] Candidate search_sums(ResultsFile& results);
  [[nodiscard]] std::optional<SplitTimes> measure(const Cuts& cuts);
  [[nodiscard]] bool after(const SplitSearch::Generation& generation, ResultsFile& results);
  [[nodiscard]] double seconds() const;

  const SplitTarget& target_;
  const SplitOptions& options_;
  std::string gpu_;
  NodeTimes operators_;  ///< Of --operators.
  CandidateTimes times_;
  std::uint64_t begin_ns_;
  int repeats_ = 1;
  std::size_t measured_ = 0;
  std::size_t rated_ = 0;
  std::string ended_;
};

}  // namespace sluice::engine
