#pragma once
#include <string>

#include "engine/split/options.hpp"
#include "engine/split/results.hpp"
#include "engine/torch/split_target.hpp"

namespace sluice::engine {

/// A model whose candidates are measured until the time is over, with progress on stderr.
class MeasuredSplit {
 public:
  /// `known`: candidates that need no measuring.
  MeasuredSplit(const SplitTarget& target, const SplitOptions& options, CandidateTimes known);

  [[nodiscard]] const CandidateTimes& times() const { return times_; }
  /// Why the search ended.
  [[nodiscard]] const std::string& ended() const { return ended_; }

  /// Searches; adds a line to `results` for each generation.
  [[nodiscard]] Candidate search(ResultsFile& results);

 private:
  [[nodiscard]] std::optional<SplitTimes> measure(const Cuts& cuts);
  [[nodiscard]] bool after(const SplitSearch::Generation& generation, ResultsFile& results);
  [[nodiscard]] double seconds() const;

  const SplitTarget& target_;
  const SplitOptions& options_;
  CandidateTimes times_;
  std::uint64_t begin_ns_;
  int repeats_ = 1;
  std::size_t measured_ = 0;
  std::string ended_;
};

}  // namespace sluice::engine
