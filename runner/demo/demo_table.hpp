#pragma once
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "runner/demo/phase_result.hpp"
#include "runner/run/gpu_query.hpp"

namespace sluice::runner {

/// Both models under one policy, against each alone.
struct DemoRow {
  std::string policy;
  double notice_ms = 0;
  PhaseResult result;
};

/// The outcome of the demo.
struct DemoTable {
  Gpus gpus;
  int device = 0;
  double seconds_per_phase = 0;  ///< Real time.
  ModelFigures critical_alone;
  ModelFigures best_effort_alone;
  std::vector<DemoRow> rows;
};

[[nodiscard]] std::string demo_text(const DemoTable& table);
[[nodiscard]] nlohmann::ordered_json demo_json(const DemoTable& table);

}  // namespace sluice::runner
