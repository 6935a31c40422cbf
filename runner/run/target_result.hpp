#pragma once
#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "runner/experiment.hpp"

namespace sluice::runner {

/// How the jobs of a model kept its target. Times are GPU time; NaN if unknown.
struct TargetResult {
  std::string text;        ///< As in the experiment.
  std::string state;       ///< As in `sluice status --json`; empty if the model was not in it.
  double limit_ms = 0;     ///< In force at the end of the run.
  double alone_ms = 0;     ///< What jobs with closed gates take, at the target's percentile.
  std::uint64_t jobs = 0;  ///< All jobs of the job log: also those of the time of learning.
  std::uint64_t in_time = 0;
  /// Of the time of the jobs: the share in which the gates below were open.
  double open_share = 0;

  /// NaN if the limit is unknown or there are no jobs.
  [[nodiscard]] double in_time_share() const;
};

/// Nothing if the model has no target. `status` is that of `sluice status --json` at the end of the
/// run, or null.
[[nodiscard]] std::optional<TargetResult> target_result(const Model& model, pid_t pid,
                                                        double time_scale,
                                                        const std::vector<double>& jct_ms,
                                                        const nlohmann::json& status);

/// "target p99=1.5x (12.300 ms): 99.4 % of 812 jobs in time; gates open for 63 % of their time"
[[nodiscard]] std::string target_text(const TargetResult& target);
[[nodiscard]] nlohmann::ordered_json target_json(const std::optional<TargetResult>& target);

}  // namespace sluice::runner
