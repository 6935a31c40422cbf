#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace sluice::engine {

/// The image as [3, height, width], uint8, on the CPU: grey becomes RGB, alpha is dropped. Throws
/// base::RunError: missing, not an image, or of channels that are neither.
[[nodiscard]] at::Tensor read_image(const std::string& file);

}  // namespace sluice::engine
