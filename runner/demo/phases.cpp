#include "runner/demo/phases.hpp"

#include <algorithm>

namespace sluice::runner {
namespace {

using Json = nlohmann::ordered_json;

Json control(const Phase& phase) {
  if (phase.policy.empty()) return {{"control", false}};
  return {{"control", true}, {"policy", phase.policy}};
}

/// An inference server's request: short, and the one somebody waits for.
Json critical(const Phase& phase) {
  // Jitter: with an exact period, jobs would meet the GPU's time slices always at the same place.
  Json model{{"model_name", "resnet50_b1"},
             {"backend", "recording"},
             {"output_file_path", "."},
             {"output_file_name", kCritical},
             {"priority", 1},
             {"cuda_graph", true},
             {"arrival", {{"kind", "periodic"}, {"period_ms", 6}, {"jitter", 0.3}, {"seed", 1}}},
             {"control", control(phase)}};
  if (phase.notice_ms != 0) model["announce_ms"] = phase.notice_ms;
  return model;
}

/// Batch work that takes all the GPU gives it.
Json best_effort(const Phase& phase) {
  return {{"model_name", "resnet152_b256"},  {"backend", "recording"}, {"output_file_path", "."},
          {"output_file_name", kBestEffort}, {"priority", 0},          {"sleep_time", 0},
          {"control", control(phase)}};
}

}  // namespace

std::vector<Phase> demo_phases() {
  std::vector<Phase> phases{
      {"critical-alone", "the critical model alone", "", true, false},
      {"best-effort-alone", "the best-effort model alone", "", false, true},
  };
  for (const std::string policy :
       {"none", "gate", "sync:1", "event:2", "device:4", "device:200us"}) {
    std::string name = policy;
    std::replace(name.begin(), name.end(), ':', '-');
    phases.push_back({name, "both together under " + policy, policy});
  }
  Phase announced = phases.back();
  announced.name += "-notice";
  announced.title += ", each critical job announced 2 ms before";
  announced.notice_ms = 2;
  phases.push_back(announced);
  return phases;
}

Json demo_experiment(const Phase& phase, double duration_s, int device) {
  Json models = Json::array();
  if (phase.best_effort) models.push_back(best_effort(phase));
  if (phase.critical) models.push_back(critical(phase));
  return {{"models", models}, {"exp_dur", duration_s}, {"device_id", device}};
}

}  // namespace sluice::runner
