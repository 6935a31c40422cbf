#include "runner/worker/trace_backend.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "runner/worker/gpu_time.hpp"

namespace sluice::runner {

TraceBackend::TraceBackend(const Model& model, Trace trace, int device, double time_scale,
                           bool simulated)
    : model_(model),
      trace_(std::move(trace)),
      time_scale_(time_scale),
      context_(device),
      spin_(trace_.names),
      stream_(make_stream()),
      one_wave_(static_cast<std::uint32_t>(
          std::max(1, context_.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)))) {
  if (!simulated) spin_.calibrate(stream_.get());
  if (model_.cuda_graph) capture();
}

std::string TraceBackend::describe() const {
  std::string text =
      fmt::format("trace {} of {}: {} kernels, {:.3f} ms", trace_.model,
                  trace_.gpu.empty() ? "an unknown GPU" : trace_.gpu, trace_.kernels.size(),
                  static_cast<double>(trace_.kernels_ns()) / 1e6);
  if (model_.cuda_graph) text += ", as one CUDA graph";
  if (model_.host_gap_from_trace) text += ", with the recorded host gaps";
  if (model_.host_gap_us > 0) text += fmt::format(", {:g} us between launches", model_.host_gap_us);
  if (trace_.left_out > 0) {
    text += fmt::format("; left out: {} copies and fills, {:.3f} ms", trace_.left_out,
                        static_cast<double>(trace_.left_out_ns) / 1e6);
  }
  return text;
}

/// Each sort of kernel is a function of its own, as in the model itself: traces show its name, and
/// device:Tus learns its length (intercept/lengths.hpp).
void TraceBackend::launch_kernel(const TraceKernel& kernel) {
  spin_.launch(stream_.get(), kernel.sort, std::min(kernel.blocks, one_wave_), kernel.threads,
               kernel.duration_ns);
}

void TraceBackend::capture() {
  SLUICE_CUDA(cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  for (const TraceKernel& kernel : trace_.kernels) launch_kernel(kernel);
  CUgraph graph = nullptr;
  SLUICE_CUDA(cuStreamEndCapture(stream_.get(), &graph));
  graph_ = CudaGraph(graph);
  CUgraphExec exec = nullptr;
  SLUICE_CUDA(cuGraphInstantiate(&exec, graph, 0));
  graph_exec_ = CudaGraphExec(exec);
}

void TraceBackend::launch_job() {
  if (model_.cuda_graph) {
    SLUICE_CUDA(cuGraphLaunch(graph_exec_.get(), stream_.get()));
    return;
  }
  const GpuTime since_start(time_scale_, shm::monotonic_ns());
  for (const TraceKernel& kernel : trace_.kernels) {
    if (model_.host_gap_from_trace) {
      since_start.wait_until(static_cast<std::uint64_t>(kernel.launch_ns));
    } else if (model_.host_gap_us > 0 && &kernel != &trace_.kernels.front()) {
      const auto gap_ns = static_cast<std::uint64_t>(model_.host_gap_us * 1e3);
      since_start.wait_until(since_start.now_ns() + gap_ns);
    }
    launch_kernel(kernel);
  }
}

void TraceBackend::wait_for_job() { SLUICE_CUDA(cuStreamSynchronize(stream_.get())); }

}  // namespace sluice::runner
