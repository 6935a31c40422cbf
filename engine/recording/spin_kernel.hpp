#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/recording/cuda_objects.hpp"

namespace sluice::engine {

/// Kernels that keep the GPU busy for a given time, in the current context: `sluice_spin`, and the
/// same under the name of each recorded kernel.
class SpinKernel {
 public:
  /// recorded: a name for each kernel that launch() is to know, by number; names may be the same.
  explicit SpinKernel(const std::vector<std::string>& recorded);

  /// Measures how fast the GPU's clock runs and how long an empty kernel takes; without it (on the
  /// simulated GPU, which takes the time itself) kernels are launched with their full length.
  void calibrate(CUstream stream);

  /// Launches recorded kernel number `kernel` for `duration_ns` from start to end. Asynchronous.
  void launch(CUstream stream, std::uint32_t kernel, std::uint32_t blocks, std::uint32_t threads,
              std::uint64_t duration_ns);

  [[nodiscard]] std::uint64_t cycles_per_us() const { return cycles_per_us_; }

 private:
  void launch(CUfunction function, CUstream stream, std::uint32_t blocks, std::uint32_t threads,
              std::uint64_t duration_ns);

  CudaModule module_;
  CUfunction unnamed_ = nullptr;  // calibrates, and is in no recording
  std::vector<CUfunction> functions_;
  std::uint64_t cycles_per_us_ = 1000;
  std::uint64_t own_ns_ = 0;
};

}  // namespace sluice::engine
