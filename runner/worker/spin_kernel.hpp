#pragma once
#include <cstdint>

#include "runner/worker/cuda_objects.hpp"

namespace sluice::runner {

/// The kernel `sluice_spin`, which keeps the GPU busy for a given time, in the current context.
class SpinKernel {
 public:
  SpinKernel();

  /// Measures how fast the GPU's clock runs and how long an empty kernel takes; without it (on the
  /// simulated GPU, which takes the time itself) kernels are launched with their full length.
  void calibrate(CUstream stream);

  /// Launches one kernel of `duration_ns` from start to end. Asynchronous.
  void launch(CUstream stream, std::uint32_t blocks, std::uint32_t threads,
              std::uint32_t shared_bytes, std::uint64_t duration_ns);

  [[nodiscard]] std::uint64_t cycles_per_us() const { return cycles_per_us_; }

 private:
  CudaModule module_;
  CUfunction function_ = nullptr;
  std::uint64_t cycles_per_us_ = 1000;
  std::uint64_t own_ns_ = 0;
};

}  // namespace sluice::runner
