#pragma once
#include <ATen/core/Tensor.h>

#include "runner/experiment.hpp"
#include "runner/model_store.hpp"

namespace sluice::runner {

/// The input of every job, on `device`: [batch_size, ...], in the model's type. From the image that
/// the experiment names, or for `synthetic` and without a name from a fixed seed. Images are scaled
/// to the model's size, or to resize_size; a detection model takes them as they are otherwise.
/// Throws RunError.
[[nodiscard]] at::Tensor make_input(const Model& model, const StoredModel& stored,
                                    const at::Device& device);

}  // namespace sluice::runner
