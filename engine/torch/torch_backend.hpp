#pragma once
#include <c10/core/Device.h>

#include <memory>
#include <optional>
#include <string>

#include "base/output.hpp"
#include "engine/backend.hpp"
#include "engine/model_spec.hpp"
#include "engine/torch/network.hpp"

namespace sluice::engine {

/// A PyTorch model. Every job is one inference on the same input, on a GPU or the CPU.
class TorchBackend : public Backend {
 public:
  /// Loads the model and its input. If `digest_file` is not empty, the digest of every job's
  /// outputs is written to it, and LibTorch uses deterministic algorithms. Throws base::RunError,
  /// or OutOfMemory if the GPU has too little memory.
  TorchBackend(const ModelSpec& model, StoredModel stored, const c10::Device& device,
               const std::string& digest_file);

  [[nodiscard]] std::string describe() const override;
  void launch_job() override;
  void wait_for_job() override;
  void after_job() override;
  [[nodiscard]] Memory peak_memory() const override;

 private:
  void load();
  /// Runs `step` and turns errors of LibTorch into base::RunError.
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
