#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/tensor.hpp"
#include "engine/weights.hpp"

namespace sluice::engine {

/// A batch of requests on its way through the blocks of a model. Keeps its state between two
/// blocks, so that another batch can run there. Owned by one thread at a time.
class Batch {
 public:
  Batch() = default;
  Batch(const Batch&) = delete;
  Batch& operator=(const Batch&) = delete;
  virtual ~Batch() = default;

  /// Gives the device the work of `count` blocks from block `first`. Asynchronous on a GPU. The
  /// copy of the outputs to host memory follows the last block. Throws base::RunError, or
  /// ContextLost if the device is unusable from now on.
  virtual void launch(std::size_t first, std::size_t count) = 0;
  /// Whether the work so far has finished: of begin(), and then of the last launch(). Does not
  /// wait. Throws as launch() does.
  [[nodiscard]] virtual bool done() = 0;
  /// The outputs, once the last block is done: first dimension = items of all requests, in order.
  /// Valid while this object lives.
  [[nodiscard]] virtual std::vector<Tensor> outputs() = 0;
};

/// A model that a server has loaded: one instance, for one batch at a time per launch(), but with
/// any number of batches between two blocks.
class ServedModel {
 public:
  ServedModel() = default;
  ServedModel(const ServedModel&) = delete;
  ServedModel& operator=(const ServedModel&) = delete;
  virtual ~ServedModel() = default;

  /// One line for the log that says what runs, and where.
  [[nodiscard]] virtual std::string describe() const = 0;
  [[nodiscard]] virtual const std::vector<TensorSpec>& inputs() const = 0;
  [[nodiscard]] virtual const std::vector<TensorSpec>& outputs() const = 0;
  /// Whether the tensors of the model have a batch dimension. Else begin() and Batch::outputs()
  /// have a first dimension of 1 in front of each shape, and a batch is one item.
  [[nodiscard]] virtual bool batched() const { return true; }
  /// The blocks of a batch; 1: only whole.
  [[nodiscard]] virtual std::size_t blocks() const = 0;

  /// The weights, which may be evicted between two batches. Null if they never leave the device.
  [[nodiscard]] virtual Weights* weights() { return nullptr; }

  /// Copies the inputs of a request to where begin() reads them fastest, and lets `inputs` refer to
  /// the copy. Returns what keeps the copy alive; null: nothing was copied. Optional: a server
  /// calls it as soon as a request is complete, so that the device does not wait for the copy. For
  /// inputs that fit. Thread-safe. Never fails.
  [[nodiscard]] virtual std::shared_ptr<const void> stage(std::vector<Tensor>& /*inputs*/) {
    return nullptr;
  }

  /// Copies the inputs of the requests, one list of tensors in the order of inputs() each, into a
  /// new batch. Their data must live until the work of the batch's first launch() is done. The
  /// items of all requests together are at most the batch size that the model was loaded with.
  /// Throws base::RunError, or ContextLost.
  [[nodiscard]] virtual std::unique_ptr<Batch> begin(
      std::span<const std::vector<Tensor>> requests) = 0;
};

}  // namespace sluice::engine
