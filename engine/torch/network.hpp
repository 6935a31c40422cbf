#pragma once
#include <ATen/core/ivalue.h>

#include <memory>

#include "engine/store/model_store.hpp"

namespace sluice::engine {

/// A loaded model with its input. For one thread.
class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

  /// Computes the outputs on the current stream. Asynchronous on a GPU.
  [[nodiscard]] virtual c10::IValue run() = 0;
};

/// Loads a TorchScript file. The first dimension of `batch` is the batch; a detection model gets a
/// list of the items.
[[nodiscard]] std::unique_ptr<Network> load_scripted(const StoredModel& model,
                                                     const at::Tensor& batch);

/// Loads an AOTInductor package, which must be compiled for the device of `inputs`.
[[nodiscard]] std::unique_ptr<Network> load_compiled(const StoredModel& model,
                                                     const std::vector<at::Tensor>& inputs);

}  // namespace sluice::engine
