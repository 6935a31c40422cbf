#pragma once

namespace sluice::engine {

/// Registers torchvision's operators with LibTorch, such as nms and roi_align, which scripted
/// detection models call. Throws base::RunError that names the missing file.
void load_detection_operators();

/// The same for image::decode_image.
void load_image_operators();

}  // namespace sluice::engine
