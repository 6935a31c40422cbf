#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

namespace sluice::runner {

/// Names of the two models of the demo, which are also those of their logs.
inline constexpr const char* kCritical = "critical";
inline constexpr const char* kBestEffort = "best_effort";

/// One run of the demo.
struct Phase {
  std::string name;    ///< Also its folder.
  std::string title;   ///< For the user.
  std::string policy;  ///< Of both together; empty where one model is alone, without our hooks.
  bool critical = true;
  bool best_effort = true;
  double notice_ms = 0;  ///< Critical jobs are announced so long before they are to begin.
};

/// Each model alone, then both under every policy, and under the last with notice.
[[nodiscard]] std::vector<Phase> demo_phases();

/// The experiment file of a phase. duration_s: real seconds.
[[nodiscard]] nlohmann::ordered_json demo_experiment(const Phase& phase, double duration_s,
                                                     int device);

}  // namespace sluice::runner
