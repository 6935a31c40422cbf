#pragma once
#include <c10/core/Device.h>

#include <string>

#include "engine/backend.hpp"

namespace sluice::engine {

/// Makes a GPU the current one of this thread. Throws base::RunError if LibTorch cannot use it.
void use_gpu(const c10::Device& device);

/// Makes a stream of its own the current one of this thread: the default one cannot be captured.
void use_side_stream();

/// Waits for the current stream.
void synchronise_stream();

/// What LibTorch's allocator has held at most on a GPU.
[[nodiscard]] Backend::Memory peak_gpu_memory(const c10::Device& device);

/// Path of the library of LibTorch that is loaded.
[[nodiscard]] std::string loaded_torch_library();

}  // namespace sluice::engine
