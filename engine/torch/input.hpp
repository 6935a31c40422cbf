#pragma once
#include <ATen/core/Tensor.h>

#include "engine/model_spec.hpp"
#include "engine/store/model_store.hpp"

namespace sluice::engine {

/// The input of every job, on `device`: [batch_size, ...], in the model's type. From the image that
/// the experiment names, or for `synthetic` and without a name from a fixed seed. Images are scaled
/// to the model's size, or to resize_size; a detection model takes them as they are otherwise.
/// Throws base::RunError.
[[nodiscard]] at::Tensor make_input(const ModelSpec& model, const StoredModel& stored,
                                    const at::Device& device);

}  // namespace sluice::engine
