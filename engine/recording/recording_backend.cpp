#include "engine/recording/recording_backend.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/gpu_time.hpp"

namespace sluice::engine {

RecordingBackend::RecordingBackend(const ModelSpec& model, Recording recording, int device,
                                   double time_scale, bool simulated)
    : model_(model),
      recording_(std::move(recording)),
      time_scale_(time_scale),
      context_(device),
      spin_(recording_.names),
      stream_(make_stream()),
      one_wave_(static_cast<std::uint32_t>(
          std::max(1, context_.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)))) {
  if (!simulated) spin_.calibrate(stream_.get());
  if (model_.cuda_graph) capture();
}

std::string RecordingBackend::describe() const {
  std::string text =
      fmt::format("recording {} of {}: {} kernels, {:.3f} ms", recording_.model,
                  recording_.gpu.empty() ? "an unknown GPU" : recording_.gpu,
                  recording_.kernels.size(), static_cast<double>(recording_.kernels_ns()) / 1e6);
  if (model_.cuda_graph) text += ", as one CUDA graph";
  if (model_.host_gap_from_recording) text += ", with the recorded host gaps";
  if (model_.host_gap_us > 0) text += fmt::format(", {:g} us between launches", model_.host_gap_us);
  if (recording_.left_out > 0) {
    text += fmt::format("; left out: {} copies and fills, {:.3f} ms", recording_.left_out,
                        static_cast<double>(recording_.left_out_ns) / 1e6);
  }
  return text;
}

/// As in the model itself, kernels of different name, grid or block are different functions. So
/// traces show the recorded names, and device:Tus learns a duration for each function.
void RecordingBackend::launch_kernel(const RecordedKernel& kernel) {
  spin_.launch(stream_.get(), kernel.function, std::min(kernel.blocks, one_wave_), kernel.threads,
               kernel.duration_ns);
}

void RecordingBackend::capture() {
  SLUICE_CUDA(cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (const RecordedKernel& kernel : recording_.kernels) launch_kernel(kernel);
  CUgraph graph = nullptr;
  SLUICE_CUDA(cuStreamEndCapture(stream_.get(), &graph));
  graph_ = CudaGraph(graph);
  CUgraphExec exec = nullptr;
  SLUICE_CUDA(cuGraphInstantiate(&exec, graph, 0));
  graph_exec_ = CudaGraphExec(exec);
}

void RecordingBackend::launch_job() {
  if (model_.cuda_graph) {
    SLUICE_CUDA(cuGraphLaunch(graph_exec_.get(), stream_.get()));
    return;
  }
  const GpuTime since_start(time_scale_, base::monotonic_ns());
  for (const RecordedKernel& kernel : recording_.kernels) {
    if (model_.host_gap_from_recording) {
      since_start.wait_until(static_cast<std::uint64_t>(kernel.launch_ns));
    } else if (model_.host_gap_us > 0 && &kernel != &recording_.kernels.front()) {
      const auto gap_ns = static_cast<std::uint64_t>(model_.host_gap_us * 1e3);
      since_start.wait_until(since_start.now_ns() + gap_ns);
    }
    launch_kernel(kernel);
  }
}

void RecordingBackend::wait_for_job() { SLUICE_CUDA(cuStreamSynchronize(stream_.get())); }

}  // namespace sluice::engine
