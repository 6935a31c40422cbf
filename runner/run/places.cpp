#include "runner/run/places.hpp"

#include <fmt/format.h>

namespace sluice::runner {

bool runs_on_cpu(const Model& model, const base::Gpus& gpus) {
  return model.backend != "recording" && gpus.simulated;
}

double time_scale_of(const Model& model, const base::Gpus& gpus) {
  return runs_on_cpu(model, gpus) ? 1 : gpus.time_scale;
}

std::string describe_places(const Experiment& experiment, const base::Gpus& gpus) {
  std::string on_cpu;
  bool any_on_gpu = false;
  for (const Model& model : experiment.models) {
    if (runs_on_cpu(model, gpus)) {
      on_cpu += (on_cpu.empty() ? "" : ", ") + model.output_file_name;
    } else {
      any_on_gpu = true;
    }
  }
  std::string text;
  if (any_on_gpu) {
    const char* sharing = experiment.mps ? ", under MPS" : gpus.simulated ? "" : ", time-sliced";
    text = base::describe_gpu(gpus, experiment.device_id) + sharing + "\n";
  }
  if (!on_cpu.empty()) {
    text += fmt::format("CPU: {}: no real GPU here ({}): NOTHING IS GATED, and times are real\n",
                        on_cpu, gpus.why_simulated);
  }
  return text;
}

}  // namespace sluice::runner
