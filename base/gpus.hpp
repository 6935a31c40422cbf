#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/install.hpp"

namespace sluice::base {

/// The GPUs that a program can use.
struct Gpus {
  bool simulated = false;
  double time_scale = 1;           ///< Real time per GPU time; 1 on a real GPU.
  std::vector<std::string> names;  ///< By index.
  std::string why_simulated;
  std::vector<std::string> archs;  ///< By index: "sm_90"; empty if `sluice gpus` reports none.
  bool mps = false;                ///< The asking process is a client of an MPS daemon there.
  int least_sms = 0;               ///< SMs of the smallest one; 0 if `sluice gpus` reports none.
  std::uint64_t most_memory = 0;   ///< Bytes of the largest one; 0 if `sluice gpus` reports none.
};

/// Asks `sluice gpus`, which alone decides between a real and a simulated GPU. choice: auto, real
/// or sim. Throws RunError with its error line if there is no such GPU.
[[nodiscard]] Gpus query_gpus(const Install& install, const std::string& choice,
                              const std::string& session);

/// Parses the output of `sluice gpus --json`. Throws RunError for any other text.
[[nodiscard]] Gpus parse_gpus(const std::string& json);

/// "GPU 0: NVIDIA H200 (real)", or for a simulated GPU what that means for the figures.
[[nodiscard]] std::string describe_gpu(const Gpus& gpus, int device);

}  // namespace sluice::base
