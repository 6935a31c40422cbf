#pragma once
#include <string>
#include <vector>

#include "base/install.hpp"
#include "runner/experiment.hpp"

namespace sluice::runner {

/// The GPUs that a run can use.
struct Gpus {
  bool simulated = false;
  double time_scale = 1;           ///< Real time per time of the GPU; 1 on a real one.
  std::vector<std::string> names;  ///< By index.
  std::string why_simulated;
  std::vector<std::string> archs;  ///< By index: "sm_90"; empty where `sluice gpus` says none.
};

/// Asks `sluice gpus`, which alone decides this. choice: auto, real or sim. Throws base::RunError
/// with its one line if there is no such GPU.
[[nodiscard]] Gpus query_gpus(const base::Install& install, const std::string& choice,
                              const std::string& session);

/// What `sluice gpus --json` printed, made Gpus. Throws base::RunError if it is something else.
[[nodiscard]] Gpus parse_gpus(const std::string& json);

/// Whether a model runs on the CPU: LibTorch cannot use the simulated GPU.
[[nodiscard]] bool runs_on_cpu(const Model& model, const Gpus& gpus);

/// Real time per time in which the model's figures are.
[[nodiscard]] double time_scale_of(const Model& model, const Gpus& gpus);

/// The lines that say where the models run. Those on the CPU are named: a reader must not take
/// their figures for those of a GPU.
[[nodiscard]] std::string describe_places(const Experiment& experiment, const Gpus& gpus);

/// "GPU 0: NVIDIA H200 (real)", or what simulated means for the figures.
[[nodiscard]] std::string describe_gpu(const Gpus& gpus, int device);

}  // namespace sluice::runner
