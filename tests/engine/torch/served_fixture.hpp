#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "engine/store/model_store.hpp"
#include "engine/torch/served_torch.hpp"

namespace sluice::test {

/// One input of a request, with its memory.
class Input {
 public:
  /// `items` items of a model's input, different for each seed.
  Input(const engine::TensorSpec& spec, std::size_t items, unsigned seed);
  /// The content of a file.
  Input(const engine::TensorSpec& spec, std::size_t items, const std::string& file);

  [[nodiscard]] std::vector<engine::Tensor> request() const { return {tensor_}; }
  [[nodiscard]] engine::Tensor& tensor() { return tensor_; }

 private:
  std::shared_ptr<std::vector<std::byte>> data_ = std::make_shared<std::vector<std::byte>>();
  engine::Tensor tensor_;
};

/// A batch of these requests.
[[nodiscard]] std::unique_ptr<engine::Batch> begin(engine::ServedModel& model,
                                                   const std::vector<Input>& requests);

/// The bytes of all outputs, one after another. Waits for the batch.
using Bytes = std::vector<std::byte>;
[[nodiscard]] Bytes bytes_of(engine::Batch& batch);

/// Runs all blocks of a batch, one launch each. Returns its outputs.
[[nodiscard]] Bytes run_blocks(engine::ServedModel& model, const std::vector<Input>& requests);

/// Loads the models that make_models.py made, on the CPU with one thread, so that sums always have
/// the same order; with SLUICE_TEST_GPU on that GPU.
class ServedTest : public testing::Test {
 protected:
  void SetUp() override;

  /// The GPU of tests/real_gpu/blocks.sh; nothing everywhere else.
  [[nodiscard]] static std::optional<int> gpu();

  [[nodiscard]] static engine::StoredModel stored(const std::string& model,
                                                  const std::string& format = "torchscript",
                                                  int batch = 1);
  [[nodiscard]] static std::unique_ptr<engine::ServedModel> load(
      const std::string& model, std::size_t max_batch = 2, std::vector<std::size_t> cuts = {});
  /// A file of a model's folder.
  [[nodiscard]] static std::string file(const std::string& model, const std::string& name);
  /// All nodes at which the model can be cut.
  [[nodiscard]] static std::vector<std::size_t> cuts_of(const std::string& model);
  /// The error of begin() for this request; empty if it is taken.
  [[nodiscard]] static std::string refusal(engine::ServedModel& model,
                                           const std::vector<engine::Tensor>& request);
};

}  // namespace sluice::test
