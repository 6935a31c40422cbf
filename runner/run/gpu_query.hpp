#pragma once
#include <string>
#include <vector>

#include "base/install.hpp"
#include "runner/experiment.hpp"

namespace sluice::runner {

/// The GPUs that a run can use.
struct Gpus {
  bool simulated = false;
  double time_scale = 1;           ///< Real time per GPU time; 1 on a real GPU.
  std::vector<std::string> names;  ///< By index.
  std::string why_simulated;
  std::vector<std::string> archs;  ///< By index: "sm_90"; empty if `sluice gpus` reports none.
};

/// Asks `sluice gpus`, which alone decides between a real and a simulated GPU. choice: auto, real
/// or sim. Throws base::RunError with its error line if there is no such GPU.
[[nodiscard]] Gpus query_gpus(const base::Install& install, const std::string& choice,
                              const std::string& session);

/// Parses the output of `sluice gpus --json`. Throws base::RunError for any other text.
[[nodiscard]] Gpus parse_gpus(const std::string& json);

/// Whether a model runs on the CPU: LibTorch cannot use the simulated GPU.
[[nodiscard]] bool runs_on_cpu(const Model& model, const Gpus& gpus);

/// Real time per unit of the time in the model's figures.
[[nodiscard]] double time_scale_of(const Model& model, const Gpus& gpus);

/// Lines that say where the models run. Models on the CPU are named, so that nobody takes their
/// figures for figures of a GPU.
[[nodiscard]] std::string describe_places(const Experiment& experiment, const Gpus& gpus);

/// "GPU 0: NVIDIA H200 (real)", or for a simulated GPU what that means for the figures.
[[nodiscard]] std::string describe_gpu(const Gpus& gpus, int device);

}  // namespace sluice::runner
