#pragma once
#include <ATen/core/Tensor.h>

#include <string>

namespace sluice::runner {

/// The image as [3, height, width], uint8, on the CPU: grey becomes RGB, alpha is dropped. Throws
/// RunError: missing, not an image, or of channels that are neither.
[[nodiscard]] at::Tensor read_image(const std::string& file);

}  // namespace sluice::runner
