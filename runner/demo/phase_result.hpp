#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace sluice::runner {

/// What the demo shows of one model in one phase; in the time of the GPU.
struct ModelFigures {
  std::uint64_t jobs = 0;
  double mean_ms = 0;
  double p50_ms = 0;
  double p99_ms = 0;
  double throughput_per_s = 0;
};

/// What the hooks counted in the best-effort process up to the end of the phase.
struct HookCounts {
  std::uint64_t launches = 0;
  std::uint64_t gated = 0;
  std::uint64_t bypassed = 0;
};

struct PhaseResult {
  std::optional<ModelFigures> critical;
  std::optional<ModelFigures> best_effort;
  std::optional<HookCounts> hooks;
};

/// From what `sluice run` left in a folder: results.json, and status.json where there were hooks.
/// Throws base::RunError if there are no usable figures in it.
[[nodiscard]] PhaseResult read_phase_result(const std::string& folder);

}  // namespace sluice::runner
