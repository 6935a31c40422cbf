#pragma once
#include <ATen/core/Tensor.h>

#include "engine/model_spec.hpp"
#include "engine/store/model_store.hpp"

namespace sluice::engine {

/// The input of every job on `device`, [batch_size, ...] in the model's type. The input is the
/// image that the experiment names, or random from a fixed seed for `synthetic` and for an empty
/// name. Images are scaled to resize_size or to the model's size; a detection model otherwise takes
/// an image unscaled. Throws base::RunError.
[[nodiscard]] at::Tensor make_input(const ModelSpec& model, const StoredModel& stored,
                                    const at::Device& device);

}  // namespace sluice::engine
