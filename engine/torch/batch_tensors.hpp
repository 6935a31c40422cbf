#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

#include <span>
#include <string>
#include <vector>

#include "engine/store/model_store.hpp"
#include "engine/tensor.hpp"

/// Tensors of requests as LibTorch's, and back.
namespace sluice::engine {

using Specs = std::vector<TensorSpec>;
/// One tensor for each spec.
using Tensors = std::vector<at::Tensor>;

/// The inputs of a stored model. An exported model has one and no name for it, so it has the name
/// that Triton's PyTorch backend uses: INPUT__0. Throws base::RunError if the type cannot be
/// served.
[[nodiscard]] Specs input_specs(const StoredModel& model);

/// The number of items of all requests. Throws base::RunError if the tensors do not match `specs`,
/// or if there are no items or more than `max_items`.
[[nodiscard]] std::size_t count_items(const Specs& specs,
                                      std::span<const std::vector<Tensor>> requests,
                                      std::size_t max_items);

/// The items of all requests as tensors on the CPU with `rows` rows; zeros follow the last item.
[[nodiscard]] Tensors pack(const Specs& specs, std::span<const std::vector<Tensor>> requests,
                           std::size_t rows);

/// `rows` items of zeros; sides that may have any size are small.
[[nodiscard]] Tensors zero_batch(const Specs& specs, std::size_t rows, const c10::Device& device);

/// The tensors of the one item, for a model without a batch dimension.
[[nodiscard]] Tensors without_batch(const Tensors& batch);

/// The captured batch sizes: 1, 2, 4 ... and `max_batch`.
[[nodiscard]] std::vector<std::size_t> batch_sizes(std::size_t max_batch);

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

/// All tensors in a model's output, in order. A tensor of a dictionary is named by its key, if that
/// is unique; every other one is OUTPUT__n.
[[nodiscard]] std::vector<NamedTensor> flatten(const c10::IValue& output);

/// The type of a tensor's elements for the protocol. Throws base::RunError for a type that the
/// protocol lacks.
[[nodiscard]] DataType type_of(const at::Tensor& tensor);
[[nodiscard]] at::ScalarType to_torch(DataType type);

}  // namespace sluice::engine
