#pragma once

namespace sluice::engine {

/// Makes torchvision's operators known to LibTorch: nms, roi_align and their like, which scripted
/// detection models call. Throws base::RunError that says what is missing.
void load_detection_operators();

/// The same for image::decode_image.
void load_image_operators();

}  // namespace sluice::engine
