#include "engine/torch/direct_model.hpp"

#include <c10/core/InferenceMode.h>
#include <fmt/format.h>

namespace sluice::engine {
namespace {

class DirectModel : public TorchModel {
 public:
  using TorchModel::TorchModel;

  [[nodiscard]] std::unique_ptr<Batch> begin(
      std::span<const std::vector<Tensor>> requests) override;

  void run(torch::jit::Stack& stack, std::size_t first, std::size_t count) const {
    in_torch(parts().stored.file, [&] {
      for (std::size_t i = first; i < first + count; ++i) parts().steps.at(i)(stack);
    });
  }
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
      : model_(model), stack_(std::move(arguments)), rows_(rows), items_(items) {}

  void launch(std::size_t first, std::size_t count) override {
    const c10::InferenceMode inference;
    require_next(first, next_);
    model_.run(stack_, first, count);
    next_ = first + count;
    if (next_ < model_.blocks()) return;
    outputs_ = model_.finish(stack_, rows_, items_);
    stack_.clear();
  }
  [[nodiscard]] bool done() override { return true; }
  [[nodiscard]] std::vector<Tensor> outputs() override { return as_tensors(outputs_); }

 private:
  const DirectModel& model_;
  torch::jit::Stack stack_;
  std::size_t rows_;
  std::size_t items_;
  std::size_t next_ = 0;
  std::vector<NamedTensor> outputs_;
};

std::unique_ptr<Batch> DirectModel::begin(std::span<const std::vector<Tensor>> requests) {
  const c10::InferenceMode inference;
  const TensorSpec& spec = inputs()[0];
  const std::size_t items = count_items(spec, requests, parts().max_batch);
  const std::size_t rows = rows_for(items);
  return in_torch(parts().stored.file, [&] {
    const at::Tensor batch = pack(spec, requests, rows, /*pinned=*/false).to(parts().device);
    return std::make_unique<DirectBatch>(*this, parts().arguments(batch), rows, items);
  });
}

}  // namespace

std::unique_ptr<ServedModel> direct_model(ModelParts parts) {
  const c10::InferenceMode inference;
  return std::make_unique<DirectModel>(std::move(parts));
}

}  // namespace sluice::engine
