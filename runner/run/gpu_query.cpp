#include "runner/run/gpu_query.hpp"

#include <fmt/format.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/child.hpp"
#include "base/command_line.hpp"
#include "base/error.hpp"

namespace sluice::runner {
namespace {

/// The name of the simulated GPU has its scale: "... (scale 10)". The scale in our environment may
/// be another one if the session was already running.
double scale_in_name(const std::string& name) {
  constexpr double kDefaultScale = 10;
  const std::string mark = "(scale ";
  const std::size_t at = name.find(mark);
  if (at == std::string::npos) return kDefaultScale;
  const double scale = std::strtod(name.c_str() + at + mark.size(), nullptr);
  return scale > 0 ? scale : kDefaultScale;
}

}  // namespace

Gpus parse_gpus(const std::string& json) {
  try {
    const auto answer = nlohmann::json::parse(json);
    Gpus gpus;
    gpus.simulated = answer.at("kind") == "simulated";
    gpus.why_simulated = answer.value("why_simulated", "");
    for (const auto& device : answer.at("devices")) {
      gpus.names.push_back(device.at("name").get<std::string>());
      gpus.archs.push_back(device.value("arch", ""));
    }
    if (gpus.names.empty()) throw base::RunError("sluice gpus lists no device");
    if (gpus.simulated) gpus.time_scale = scale_in_name(gpus.names.front());
    return gpus;
  } catch (const nlohmann::json::exception& error) {
    throw base::RunError(std::string("cannot parse the output of sluice gpus: ") + error.what());
  }
}

Gpus query_gpus(const base::Install& install, const std::string& choice,
                const std::string& session) {
  const base::Captured answer = base::capture(
      {install.program("sluice-gpus"), "--gpu", choice, "--json"}, {"SLUICE_SESSION=" + session});
  if (answer.exit_code != 0) {
    const std::string why = base::printed_error("sluice gpus", answer.err);
    throw base::RunError(why.empty() ? "sluice gpus could not be run; build or install it again"
                                     : why + "; --gpu sim takes the simulated one");
  }
  return parse_gpus(answer.out);
}

bool runs_on_cpu(const Model& model, const Gpus& gpus) {
  return model.backend != "recording" && gpus.simulated;
}

double time_scale_of(const Model& model, const Gpus& gpus) {
  return runs_on_cpu(model, gpus) ? 1 : gpus.time_scale;
}

std::string describe_gpu(const Gpus& gpus, int device) {
  const std::string& name = gpus.names.at(static_cast<std::size_t>(device));
  if (!gpus.simulated) return fmt::format("GPU {}: {} (real)", device, name);
  return fmt::format(
      "GPU {}: {}: SIMULATED; its time passes {:g} times slower, and the figures are in GPU time",
      device, name, gpus.time_scale);
}

std::string describe_places(const Experiment& experiment, const Gpus& gpus) {
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
    text = describe_gpu(gpus, experiment.device_id) + sharing + "\n";
  }
  if (!on_cpu.empty()) {
    text += fmt::format("CPU: {}: no real GPU here ({}): NOTHING IS GATED, and times are real\n",
                        on_cpu, gpus.why_simulated);
  }
  return text;
}

}  // namespace sluice::runner
