#include "engine/torch/direct_model.hpp"

#include <fmt/format.h>

namespace sluice::engine {
namespace {

class DirectModel : public TorchModel {
 public:
  using TorchModel::TorchModel;

  [[nodiscard]] std::unique_ptr<Batch> begin(
      std::span<const std::vector<Tensor>> requests) override;

  /// The outputs in host memory, without the rows of the padding.
  [[nodiscard]] std::vector<NamedTensor> finish(const torch::jit::Stack& stack, std::size_t rows,
                                                std::size_t items) const {
    auto outputs = named_outputs(stack, rows);
    for (auto& [name, tensor] : outputs) {
      tensor = tensor.narrow(0, 0, static_cast<std::int64_t>(items)).to(at::kCPU).contiguous();
    }
    return outputs;
  }
};

/// The stack holds what crosses the boundary between two blocks.
class DirectBatch : public Batch {
 public:
  DirectBatch(const DirectModel& model, torch::jit::Stack arguments, std::size_t rows,
              std::size_t items)
      : stream_(model.parts().stream),
        model_(model),
        stack_(std::move(arguments)),
        rows_(rows),
        items_(items) {}

  void launch(std::size_t first, std::size_t count) override {
    require_next(first, next_);
    model_.run([&] {
      for (std::size_t i = first; i < first + count; ++i) {
        model_.wait_for_weights(i);
        model_.parts().steps.at(i)(stack_);
      }
      next_ = first + count;
      if (next_ == model_.blocks()) {
        outputs_ = model_.finish(stack_, rows_, items_);
        stack_.clear();
      }
      if (stream_) stream_->wait();
    });
  }
  [[nodiscard]] bool done() override { return true; }
  [[nodiscard]] std::vector<Tensor> outputs() override { return as_tensors(outputs_); }

 private:
  // An answer keeps its batch longer than the model may live. Null on the CPU.
  std::shared_ptr<const GpuStream> stream_;
  const DirectModel& model_;
  torch::jit::Stack stack_;
  std::size_t rows_;
  std::size_t items_;
  std::size_t next_ = 0;
  std::vector<NamedTensor> outputs_;
};

std::unique_ptr<Batch> DirectModel::begin(std::span<const std::vector<Tensor>> requests) {
  const std::size_t items = count_items(inputs(), requests, parts().max_batch);
  const std::size_t rows = rows_for(items);
  return run([&] {
    Tensors batch = pack(inputs(), requests, rows);
    for (at::Tensor& tensor : batch) tensor = tensor.to(parts().device);
    return std::make_unique<DirectBatch>(*this, parts().arguments(batch), rows, items);
  });
}

}  // namespace

std::unique_ptr<ServedModel> direct_model(ModelParts parts) {
  const auto stream = parts.stream;
  const std::string file = parts.stored.file;
  return run_on(stream.get(), file,
                [&] { return std::make_unique<DirectModel>(std::move(parts)); });
}

}  // namespace sluice::engine
