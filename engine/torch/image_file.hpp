#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace sluice::engine {

/// The image as a uint8 tensor [3, height, width] on the CPU. Grey becomes RGB, and alpha is
/// dropped. Throws base::RunError if the file is missing, not an image, or has other channels.
[[nodiscard]] at::Tensor read_image(const std::string& file);

}  // namespace sluice::engine
