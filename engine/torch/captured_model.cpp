// tests/real_gpu/blocks.sh runs this on a GPU: the blocks compute what the whole model computes,
// and a preempted batch keeps its state.
#include "engine/torch/captured_model.hpp"

#include <ATen/Functions.h>
#include <ATen/cuda/CUDAEvent.h>
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "engine/torch/staging.hpp"
#include "engine/torch/stream_capture.hpp"

namespace sluice::engine {
namespace {

/// All bytes of the memory that some tensors share, as tensors of bytes. Saving memory instead of
/// values keeps strides and overlaps between the tensors.
std::vector<at::Tensor> memory_of(const torch::jit::Stack& stack) {
  std::vector<at::Tensor> memory;
  std::vector<const void*> seen;
  for (const auto& [name, tensor] : flatten(c10::ivalue::Tuple::create(stack))) {
    const void* begin = tensor.storage().data();
    if (!tensor.is_cuda() || std::ranges::find(seen, begin) != seen.end()) continue;
    seen.push_back(begin);
    memory.push_back(at::empty({0}, tensor.options().dtype(at::kByte))
                         .set_(tensor.storage(), 0,
                               {static_cast<std::int64_t>(tensor.storage().nbytes())}, {1}));
  }
  return memory;
}

/// The graphs of one batch size. They work on fixed memory: what enters a block is where the block
/// before left it.
struct Capture {
  Tensors inputs;
  std::vector<Graph> blocks;
  /// For each block, the memory of what enters it. Holding it keeps it apart from the workspace
  /// that all graphs share.
  std::vector<std::vector<at::Tensor>> state;
  std::vector<NamedTensor> outputs;
};

class CapturedModel : public TorchModel {
 public:
  CapturedModel(ModelParts parts, std::shared_ptr<GraphWorkspace> workspace)
      : TorchModel(std::move(parts)),
        workspace_(std::move(workspace)),
        staging_(pinned_pool(inputs(), this->parts().max_batch)) {
    for (const std::size_t size : this->parts().sizes) captures_.emplace(size, capture(size));
  }

  [[nodiscard]] std::shared_ptr<const void> stage(std::vector<Tensor>& inputs) override {
    return staging_ ? staging_->stage(inputs) : nullptr;
  }
  [[nodiscard]] std::unique_ptr<Batch> begin(
      std::span<const std::vector<Tensor>> requests) override;

  [[nodiscard]] const Capture& capture_of(std::size_t rows) const { return captures_.at(rows); }
  [[nodiscard]] GraphWorkspace& workspace() const { return *workspace_; }

 private:
  [[nodiscard]] Capture capture(std::size_t rows) const;

  std::shared_ptr<GraphWorkspace> workspace_;
  std::shared_ptr<StagingPool> staging_;  ///< Null: the size of a request is not known.
  std::map<std::size_t, Capture> captures_;
};

Capture CapturedModel::capture(std::size_t rows) const {
  // Handles, workspaces and compiled kernels are created on first use, which a capture forbids.
  constexpr int kWarmUps = 2;
  for (int i = 0; i < kWarmUps; ++i) static_cast<void>(run_on_zeros(rows));
  workspace_->stream().wait();
  Capture made;
  made.inputs = zero_batch(inputs(), rows, parts().device);
  torch::jit::Stack stack = parts().arguments(made.inputs);
  for (const Step& step : parts().steps) {
    made.state.push_back(memory_of(stack));
    StreamCapture block(workspace_->pool());
    step(stack);
    made.blocks.push_back(block.end());
  }
  made.outputs = named_outputs(stack, rows);
  return made;
}

/// A batch keeps its state in memory of its own: the graphs' memory belongs to whichever batch
/// runs.
class CapturedBatch : public Batch {
 public:
  CapturedBatch(const CapturedModel& model, const Capture& capture, const Tensors& inputs,
                std::size_t items)
      : stream_(model.parts().stream),
        model_(model),
        capture_(capture),
        items_(items),
        state_(memory_of({inputs.begin(), inputs.end()})) {
    event_.record(stream_->get());
  }
  ~CapturedBatch() override {
    if (!context_lost()) return;
    // Never freed, see context_lost(). The process is about to end.
    static_cast<void>(new auto(std::move(outputs_)));
  }

  void launch(std::size_t first, std::size_t count) override {
    require_next(first, next_);
    model_.run([&] {
      const GraphWorkspace::Lock lock(model_.workspace(), *stream_);
      restore(capture_.state.at(first));
      for (std::size_t i = first; i < first + count; ++i) {
        model_.wait_for_weights(i);
        capture_.blocks.at(i)->replay();
      }
      next_ = first + count;
      if (next_ == capture_.blocks.size()) {
        fetch_outputs();
      } else {
        save(capture_.state[next_]);
      }
      event_.record(stream_->get());
    });
  }
  [[nodiscard]] bool done() override {
    return model_.run([&] { return event_.query(); });
  }
  [[nodiscard]] std::vector<Tensor> outputs() override { return as_tensors(outputs_); }

 private:
  void restore(const std::vector<at::Tensor>& to) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i].copy_(state_.at(i));
  }
  void save(const std::vector<at::Tensor>& from) {
    state_.clear();
    for (const at::Tensor& memory : from) state_.push_back(memory.clone());
  }
  void fetch_outputs() {
    state_.clear();
    for (const auto& [name, tensor] : capture_.outputs) {
      const at::Tensor rows = tensor.narrow(0, 0, static_cast<std::int64_t>(items_));
      at::Tensor host =
          at::empty(rows.sizes(), rows.options().device(at::kCPU).pinned_memory(true));
      host.copy_(rows, /*non_blocking=*/true);
      outputs_.push_back({name, host});
    }
  }

  // An answer keeps its batch longer than the model may live.
  std::shared_ptr<const GpuStream> stream_;
  const CapturedModel& model_;
  const Capture& capture_;
  std::size_t items_;
  std::size_t next_ = 0;
  std::vector<at::Tensor> state_;
  std::vector<NamedTensor> outputs_;
  at::cuda::CUDAEvent event_;
};

std::unique_ptr<Batch> CapturedModel::begin(std::span<const std::vector<Tensor>> requests) {
  const std::size_t items = count_items(inputs(), requests, parts().max_batch);
  const std::size_t rows = rows_for(items);
  return run([&] {
    const Tensors packed = pack_on_gpu(inputs(), requests, rows, parts().device);
    return std::make_unique<CapturedBatch>(*this, capture_of(rows), packed, items);
  });
}

}  // namespace

std::unique_ptr<ServedModel> captured_model(ModelParts parts,
                                            std::shared_ptr<GraphWorkspace> workspace) {
  const std::string file = parts.stored.file;
  const std::lock_guard lock(workspace->loading());
  return workspace->stream().run(file + " cannot be captured into CUDA graphs", [&] {
    return std::make_unique<CapturedModel>(std::move(parts), workspace);
  });
}

}  // namespace sluice::engine
