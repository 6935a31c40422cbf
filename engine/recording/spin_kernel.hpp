#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "engine/recording/cuda_objects.hpp"

namespace sluice::engine {

/// Kernels that keep the GPU of the current context busy for a given time: `sluice_spin`, and
/// copies of it under the names of recorded kernels.
class SpinKernel {
 public:
  /// recorded: the names of the kernels that launch() takes by index; names may repeat.
  explicit SpinKernel(const std::vector<std::string>& recorded);

  /// Measures the speed of the GPU's clock and the duration of an empty kernel. Without calibration
  /// kernels are launched with their full duration, as the simulated GPU needs.
  void calibrate(CUstream stream);

  /// Launches recorded kernel `kernel` to last `duration_ns` from start to end. Asynchronous.
  void launch(CUstream stream, std::uint32_t kernel, std::uint32_t blocks, std::uint32_t threads,
              std::uint64_t duration_ns);

  [[nodiscard]] std::uint64_t cycles_per_us() const { return cycles_per_us_; }

 private:
  void launch(CUfunction function, CUstream stream, std::uint32_t blocks, std::uint32_t threads,
              std::uint64_t duration_ns);

  CudaModule module_;
  CUfunction unnamed_ = nullptr;  // for calibration only
  std::vector<CUfunction> functions_;
  std::uint64_t cycles_per_us_ = 1000;
  std::uint64_t own_ns_ = 0;
};

}  // namespace sluice::engine
