#pragma once
#include <string>
#include <vector>

#include "runner/layout.hpp"

namespace sluice::runner {

/// The GPUs that a run can use.
struct Gpus {
  bool simulated = false;
  double time_scale = 1;           ///< Real time per time of the GPU; 1 on a real one.
  std::vector<std::string> names;  ///< By index.
  std::string why_simulated;
};

/// Asks `sluice gpus`, which alone decides this. choice: auto, real or sim. Throws RunError with
/// its one line if there is no such GPU.
[[nodiscard]] Gpus query_gpus(const Layout& layout, const std::string& choice,
                              const std::string& session);

/// What `sluice gpus --json` printed, made Gpus. Throws RunError if it is something else.
[[nodiscard]] Gpus parse_gpus(const std::string& json);

/// "GPU 0: NVIDIA H200 (real)", or what simulated means for the figures.
[[nodiscard]] std::string describe_gpu(const Gpus& gpus, int device);

}  // namespace sluice::runner
