#pragma once
#include <string>

#include "engine/backend.hpp"
#include "engine/model_spec.hpp"
#include "engine/recording/cuda_objects.hpp"
#include "engine/recording/recording.hpp"
#include "engine/recording/spin_kernel.hpp"

namespace sluice::engine {

/// Replays a recorded job: kernels of the recorded durations, in order, on one stream. They are
/// launched one by one with the host's pauses, or as one captured CUDA graph. Grids are limited to
/// one wave, so that a kernel lasts as long as in the recording.
class RecordingBackend : public Backend {
 public:
  /// device: index of the GPU. time_scale: real time per GPU time, 1 on a real GPU.
  RecordingBackend(const ModelSpec& model, Recording recording, int device, double time_scale,
                   bool simulated);

  [[nodiscard]] std::string describe() const override;
  void launch_job() override;
  void wait_for_job() override;

 private:
  void launch_kernel(const RecordedKernel& kernel);
  void capture();

  const ModelSpec& model_;
  Recording recording_;
  double time_scale_;
  CudaContext context_;
  SpinKernel spin_;
  CudaStream stream_;
  CudaGraph graph_;
  CudaGraphExec graph_exec_;
  std::uint32_t one_wave_;
};

}  // namespace sluice::engine
