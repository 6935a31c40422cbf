#pragma once
#include <string>

#include "runner/experiment.hpp"
#include "runner/trace.hpp"
#include "runner/worker/backend.hpp"
#include "runner/worker/cuda_objects.hpp"
#include "runner/worker/spin_kernel.hpp"

namespace sluice::runner {

/// Replays a recorded job: kernels of the recorded lengths, in order, on one stream; one by one
/// with the host's pauses, or as one captured CUDA graph. Grids are cut to one wave, so that a
/// kernel's length is the recorded one.
class TraceBackend : public Backend {
 public:
  /// device: index of the GPU; time_scale: how much slower its time passes, 1 on a real one.
  TraceBackend(const Model& model, Trace trace, int device, double time_scale, bool simulated);

  [[nodiscard]] std::string describe() const override;
  void launch_job() override;
  void wait_for_job() override;

 private:
  void launch_kernel(const TraceKernel& kernel);
  void capture();

  const Model& model_;
  Trace trace_;
  double time_scale_;
  CudaContext context_;
  SpinKernel spin_;
  CudaStream stream_;
  CudaGraph graph_;
  CudaGraphExec graph_exec_;
  std::uint32_t one_wave_;
};

}  // namespace sluice::runner
