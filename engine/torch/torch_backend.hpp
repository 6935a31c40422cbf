#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>

#include "base/line_file.hpp"
#include "engine/backend.hpp"
#include "engine/model_spec.hpp"
#include "engine/torch/network.hpp"

namespace sluice::engine {

/// A PyTorch model: every job is one inference on the same input, on a GPU or on the CPU.
class TorchBackend : public Backend {
 public:
  /// Loads the model and its input. With a `digest_file` every job's outputs are hashed into it,
  /// and LibTorch is set to deterministic algorithms. Throws base::RunError, OutOfMemory where the
  /// GPU's memory does not suffice.
  TorchBackend(const ModelSpec& model, StoredModel stored, const c10::Device& device,
               const std::string& digest_file);

  [[nodiscard]] std::string describe() const override;
  void launch_job() override;
  void wait_for_job() override;
  void after_job() override;
  [[nodiscard]] Memory peak_memory() const override;

 private:
  void load();
  /// Runs `step` with LibTorch's errors made ours.
  template <class Step>
  void guarded(Step step) const;

  const ModelSpec& model_;
  StoredModel stored_;
  c10::Device device_;
  std::string input_shape_;
  std::unique_ptr<Network> network_;
  c10::IValue outputs_;
  std::optional<base::LineFile> digests_;
  std::uint64_t jobs_ = 0;
};

}  // namespace sluice::engine
