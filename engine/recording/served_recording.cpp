#include "engine/recording/served_recording.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/recording/cuda_objects.hpp"
#include "engine/recording/spin_kernel.hpp"

namespace sluice::engine {
namespace {

class ServedRecording : public ServedModel {
 public:
  ServedRecording(Recording recording, std::size_t blocks, int device, bool simulated)
      : recording_(std::move(recording)),
        context_(device),
        spin_(recording_.names),
        stream_(make_stream()) {
    if (!simulated) spin_.calibrate(stream_.get());
    const auto one_wave = static_cast<std::uint32_t>(
        std::max(1, context_.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)));
    std::vector<std::size_t> ends = even_cuts(recording_, blocks);
    ends.push_back(recording_.kernels.size());
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      graphs_.push_back(capture(first, end, one_wave));
      first = end;
    }
  }

  std::string describe() const override {
    return fmt::format("recording {} of {}: {} kernels in {} CUDA graph{}, {:.3f} ms",
                       recording_.model, recording_.gpu.empty() ? "an unknown GPU" : recording_.gpu,
                       recording_.kernels.size(), graphs_.size(), graphs_.size() == 1 ? "" : "s",
                       gpu_ms());
  }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }
  std::size_t blocks() const override { return graphs_.size(); }
  std::unique_ptr<Batch> begin(std::span<const std::vector<Tensor>> requests) override;

 private:
  friend class RecordingBatch;

  [[nodiscard]] double gpu_ms() const { return static_cast<double>(recording_.kernels_ns()) / 1e6; }

  CudaGraphExec capture(std::size_t first, std::size_t end, std::uint32_t one_wave) {
    SLUICE_CUDA(cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    for (std::size_t i = first; i < end; ++i) {
      const RecordedKernel& kernel = recording_.kernels[i];
      spin_.launch(stream_.get(), kernel.function, std::min(kernel.blocks, one_wave),
                   kernel.threads, kernel.duration_ns);
    }
    CUgraph captured = nullptr;
    SLUICE_CUDA(cuStreamEndCapture(stream_.get(), &captured));
    const CudaGraph graph(captured);
    CUgraphExec exec = nullptr;
    SLUICE_CUDA(cuGraphInstantiate(&exec, graph.get(), 0));
    return CudaGraphExec(exec);
  }

  Recording recording_;
  CudaContext context_;
  SpinKernel spin_;
  CudaStream stream_;
  std::vector<CudaGraphExec> graphs_;
  std::vector<TensorSpec> inputs_{{"input0", DataType::kFp32, {-1}}};
  std::vector<TensorSpec> outputs_{{"output0", DataType::kFp32, {1}}};
};

class RecordingBatch : public Batch {
 public:
  RecordingBatch(ServedRecording& model, std::size_t items)
      : model_(model), times_(items, static_cast<float>(model.gpu_ms())) {}

  void launch(std::size_t first, std::size_t count) override {
    // Any thread may run the next block.
    model_.context_.make_current();
    if (event_.get() == nullptr) event_ = make_event();
    for (std::size_t block = first; block < first + count; ++block) {
      SLUICE_CUDA(cuGraphLaunch(model_.graphs_[block].get(), model_.stream_.get()));
    }
    SLUICE_CUDA(cuEventRecord(event_.get(), model_.stream_.get()));
  }

  bool done() override {
    if (event_.get() == nullptr) return true;
    const CUresult result = cuEventQuery(event_.get());
    if (result == CUDA_ERROR_NOT_READY) return false;
    check_cuda(result, "cuEventQuery");
    return true;
  }

  std::vector<Tensor> outputs() override {
    return {{"output0",
             DataType::kFp32,
             {static_cast<std::int64_t>(times_.size()), 1},
             std::as_bytes(std::span(times_))}};
  }

 private:
  ServedRecording& model_;
  std::vector<float> times_;
  CudaEvent event_;
};

std::unique_ptr<Batch> ServedRecording::begin(std::span<const std::vector<Tensor>> requests) {
  std::size_t items = 0;
  for (const auto& tensors : requests) {
    items += static_cast<std::size_t>(tensors.front().shape.front());
  }
  return std::make_unique<RecordingBatch>(*this, items);
}

}  // namespace

std::unique_ptr<ServedModel> serve_recording(Recording recording, std::size_t blocks, int device,
                                             bool simulated) {
  return std::make_unique<ServedRecording>(std::move(recording), blocks, device, simulated);
}

}  // namespace sluice::engine
