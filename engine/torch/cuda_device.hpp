#pragma once
#include <c10/core/Device.h>

#include <string>

#include "engine/backend.hpp"

namespace sluice::engine {

/// Makes a GPU current in this thread. Throws base::RunError if LibTorch cannot use the GPU.
void use_gpu(const c10::Device& device);

/// Makes a new stream current in this thread, because the default stream cannot be captured.
void use_side_stream();

/// Waits for the current stream.
void synchronise_stream();

/// The number of GPUs that LibTorch can use.
[[nodiscard]] int gpu_count();

/// The architecture of the GPU, such as "sm_90".
[[nodiscard]] std::string gpu_arch(const c10::Device& device);

/// The maximum of GPU memory that LibTorch's allocator has held.
[[nodiscard]] Backend::Memory peak_gpu_memory(const c10::Device& device);

/// Path of the loaded LibTorch library.
[[nodiscard]] std::string loaded_torch_library();

}  // namespace sluice::engine
