#include "engine/recording/served_recording.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "engine/recording/cuda_objects.hpp"
#include "engine/recording/recorded_weights.hpp"
#include "engine/recording/spin_kernel.hpp"

namespace sluice::engine {
namespace {

class ServedRecording : public ServedModel {
 public:
  ServedRecording(Recording recording, const RecordingOptions& options)
      : recording_(std::move(recording)),
        context_(options.device),
        spin_(recording_.names),
        stream_(make_stream()) {
    if (!options.simulated) spin_.calibrate(stream_.get());
    const auto one_wave = static_cast<std::uint32_t>(
        std::max(1, context_.attribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)));
    std::vector<std::size_t> ends = even_cuts(recording_, options.blocks);
    ends.push_back(recording_.kernels.size());
    if (options.weight_bytes > 0) {
      weights_ = std::make_unique<RecordedWeights>(
          options.device, options.placement, options.weight_bytes, ends.size(), recording_.model);
      weights_->weights().load();
      outputs_.push_back(
          {"output1", DataType::kUint64, {static_cast<std::int64_t>(weights_->numbers())}});
    }
    std::size_t first = 0;
    for (const std::size_t end : ends) {
      graphs_.push_back(capture(first, end, one_wave));
      first = end;
    }
  }

  std::string describe() const override {
    return fmt::format(
        "recording {} of {}: {} kernels in {} CUDA graph{}, {:.3f} ms{}", recording_.model,
        recording_.gpu.empty() ? "an unknown GPU" : recording_.gpu, recording_.kernels.size(),
        graphs_.size(), graphs_.size() == 1 ? "" : "s", gpu_ms(),
        weights_ ? fmt::format(", {} MiB of weights", weights_->weights().bytes() >> 20) : "");
  }
  const std::vector<TensorSpec>& inputs() const override { return inputs_; }
  const std::vector<TensorSpec>& outputs() const override { return outputs_; }
  std::size_t blocks() const override { return graphs_.size(); }
  Weights* weights() override { return weights_ ? &weights_->weights() : nullptr; }
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
    if (weights_ && weights_->fixed()) weights_->read(stream_.get(), graphs_.size());
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
  std::unique_ptr<RecordedWeights> weights_;  ///< Null: none are asked for.
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
    if (model_.weights_ && first == 0) model_.weights_->forget(model_.stream_.get());
    for (std::size_t block = first; block < first + count; ++block) launch_block(block);
    if (model_.weights_ && first + count == model_.blocks()) {
      read_ = make_pinned<std::uint64_t>(model_.weights_->numbers());
      model_.weights_->fetch(model_.stream_.get(), read_.get());
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
    const auto items = static_cast<std::int64_t>(times_.size());
    std::vector<Tensor> outputs{
        {"output0", DataType::kFp32, {items, 1}, std::as_bytes(std::span(times_))}};
    if (!model_.weights_) return outputs;
    // The same for each item.
    const std::size_t numbers = model_.weights_->numbers();
    for (std::size_t i = 0; i < times_.size(); ++i) {
      numbers_.insert(numbers_.end(), read_.get(), read_.get() + numbers);
    }
    outputs.push_back({"output1",
                       DataType::kUint64,
                       {items, static_cast<std::int64_t>(numbers)},
                       std::as_bytes(std::span(numbers_))});
    return outputs;
  }

 private:
  void launch_block(std::size_t block) {
    CUstream stream = model_.stream_.get();
    if (model_.weights_) model_.weights_->weights().wait_for_block(stream, block);
    SLUICE_CUDA(cuGraphLaunch(model_.graphs_[block].get(), stream));
    if (model_.weights_ && !model_.weights_->fixed()) model_.weights_->read(stream, block);
  }

  ServedRecording& model_;
  std::vector<float> times_;
  Pinned<std::uint64_t> read_;  ///< What the blocks have read of their weights.
  std::vector<std::uint64_t> numbers_;
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

std::unique_ptr<ServedModel> serve_recording(Recording recording, const RecordingOptions& options) {
  return std::make_unique<ServedRecording>(std::move(recording), options);
}

}  // namespace sluice::engine
