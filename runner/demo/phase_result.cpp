#include "runner/demo/phase_result.hpp"

#include <filesystem>

#include "base/error.hpp"
#include "base/json_node.hpp"
#include "runner/demo/phases.hpp"

namespace sluice::runner {
namespace {

using nlohmann::json;

ModelFigures figures_of(const json& model) {
  ModelFigures figures;
  figures.jobs = model.at("jobs").get<std::uint64_t>();
  if (figures.jobs == 0) {
    throw base::RunError("no job of " + model.at("log").get<std::string>() +
                         " ended in this phase; try a larger --seconds-per-phase");
  }
  figures.mean_ms = model.at("mean_ms").get<double>();
  figures.p50_ms = model.at("p50_ms").get<double>();
  figures.p99_ms = model.at("p99_ms").get<double>();
  figures.throughput_per_s = model.at("throughput_per_s").get<double>();
  return figures;
}

std::optional<HookCounts> hook_counts(const json& status, long pid) {
  for (const json& client : status.at("clients")) {
    if (client.at("pid") != pid) continue;
    HookCounts counts;
    counts.launches = client.at("launches").get<std::uint64_t>();
    counts.bypassed = client.at("bypassed").get<std::uint64_t>();
    for (const json& entry : client.at("coverage")) {
      counts.gated += entry.at("gated").get<std::uint64_t>();
    }
    return counts;
  }
  return std::nullopt;
}

}  // namespace

PhaseResult read_phase_result(const std::string& folder) {
  const std::filesystem::path path(folder);
  PhaseResult result;
  long best_effort_pid = 0;
  try {
    const json results = base::parse_json_file(path / "results.json");
    for (const json& model : results.at("models")) {
      const bool critical = model.at("log") == kCritical;
      (critical ? result.critical : result.best_effort) = figures_of(model);
      if (!critical) best_effort_pid = model.at("pid").get<long>();
    }
    if (std::filesystem::exists(path / "status.json")) {
      result.hooks = hook_counts(base::parse_json_file(path / "status.json"), best_effort_pid);
    }
  } catch (const json::exception& error) {
    throw base::RunError(folder + ": results are not understood: " + error.what());
  } catch (const base::UsageError& error) {
    throw base::RunError(error.what());
  }
  return result;
}

}  // namespace sluice::runner
