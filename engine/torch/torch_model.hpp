#pragma once
#include <c10/core/Device.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/served_model.hpp"
#include "engine/store/model_store.hpp"
#include "engine/torch/batch_tensors.hpp"
#include "engine/torch/gpu_stream.hpp"
#include "engine/torch/step.hpp"
#include "engine/torch/torch_weights.hpp"

namespace sluice::engine {

/// A loaded model: its parts and what it may be given.
struct ModelParts {
  /// What the model runs on; null on the CPU. First, so that it outlives the model's memory.
  std::shared_ptr<const GpuStream> stream{};
  /// Null: the weights stay on the device.
  std::shared_ptr<TorchWeights> weights{};
  StoredModel stored{};
  c10::Device device{c10::kCPU};
  std::size_t max_batch = 1;
  Specs inputs{};
  /// The batch sizes that are run; others are padded to the next. Empty: every size.
  std::vector<std::size_t> sizes{};
  std::vector<Step> steps{};
  /// Why a model on a GPU runs without CUDA graphs. Empty: it has them, or cannot have them.
  std::string uncaptured{};
  /// The stack for the first step, for the inputs on `device`. They have a first dimension of 1 if
  /// the model has no batch dimension.
  std::function<torch::jit::Stack(const Tensors&)> arguments{};
};

/// What all PyTorch models behind a server share: the description of their tensors. The constructor
/// runs the model, to learn its outputs.
class TorchModel : public ServedModel {
 public:
  explicit TorchModel(ModelParts parts);

  [[nodiscard]] std::string describe() const override;
  [[nodiscard]] const std::vector<TensorSpec>& inputs() const override { return parts_.inputs; }
  [[nodiscard]] const std::vector<TensorSpec>& outputs() const override { return outputs_; }
  [[nodiscard]] bool batched() const override { return parts_.stored.batched; }
  [[nodiscard]] std::size_t blocks() const override { return parts_.steps.size(); }
  [[nodiscard]] Weights* weights() override { return parts_.weights.get(); }

  [[nodiscard]] const ModelParts& parts() const { return parts_; }
  /// Makes the stream wait until a block may be launched.
  void wait_for_weights(std::size_t block) const;
  /// Runs `work` where the model runs. Throws base::RunError, or ContextLost.
  template <class Work>
  auto run(const Work& work) const {
    return run_on(parts_.stream.get(), parts_.stored.file, work);
  }

 protected:
  /// The rows of a batch of `items` items.
  [[nodiscard]] std::size_t rows_for(std::size_t items) const;
  /// The outputs of the last step, first dimension = rows. Throws base::RunError if a model that
  /// was given `rows` items returned another number.
  [[nodiscard]] std::vector<NamedTensor> named_outputs(const torch::jit::Stack& stack,
                                                       std::size_t rows) const;
  /// Runs all steps on zeros.
  [[nodiscard]] torch::jit::Stack run_on_zeros(std::size_t rows) const;

 private:
  void learn_outputs();
  void check_outputs();

  ModelParts parts_;
  std::vector<TensorSpec> outputs_;
};

/// Refuses blocks out of order: a batch has the state for the next block only.
void require_next(std::size_t first, std::size_t next);

/// The tensors, which must be contiguous and in host memory, as the server sees them.
[[nodiscard]] std::vector<Tensor> as_tensors(const std::vector<NamedTensor>& outputs);

}  // namespace sluice::engine
