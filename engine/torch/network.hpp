#pragma once
#include <ATen/core/ivalue.h>

#include <memory>

#include "engine/store/model_store.hpp"

namespace sluice::engine {

/// A loaded model together with its input. Used by one thread.
class Network {
 public:
  Network() = default;
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;
  virtual ~Network() = default;

  /// Computes the outputs, on the current stream. Asynchronous on a GPU.
  [[nodiscard]] virtual c10::IValue run() = 0;
};

/// A TorchScript file. `batch` has the batch as its first dimension; a detection model gets its
/// items one by one, in a list.
[[nodiscard]] std::unique_ptr<Network> load_scripted(const StoredModel& model,
                                                     const at::Tensor& batch);

/// A package of AOTInductor, compiled for the device that `batch` is on.
[[nodiscard]] std::unique_ptr<Network> load_compiled(const StoredModel& model,
                                                     const at::Tensor& batch);

}  // namespace sluice::engine
